"""The master's core as the pump drives it."""

from __future__ import annotations

from master.core import kinds
from master.core.actions import Action
from master.core.events import ActionFailed, Event, Stalled, Woke
from master.core.kinds import Job
from runtime.pump import Core

CORE: Core[Job, Event, Action] = Core(
    step=kinds.step,
    next_deadline=kinds.next_deadline,
    woke=Woke,
    stalled=Stalled,
    failed=ActionFailed,
    describe=kinds.describe,
    check=kinds.check,
)
