"""The master's core as the pump drives it."""

from __future__ import annotations

from master.core import reducer
from master.core.actions import Action
from master.core.events import ActionFailed, Event, Stalled, Woke
from master.core.state import State
from runtime.pump import Core

CORE: Core[State, Event, Action] = Core(
    step=reducer.step,
    next_deadline=reducer.next_deadline,
    woke=Woke,
    stalled=Stalled,
    failed=ActionFailed,
    describe=reducer.describe,
    check=reducer.check,
)
