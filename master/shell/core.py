"""The master's core as the pump drives it."""

from __future__ import annotations

from outrider.master.core import kinds
from outrider.master.core.actions import Action
from outrider.master.core.events import ActionFailed, Event, Stalled, Woke
from outrider.master.core.kinds import Job
from outrider.runtime.pump import Core

CORE: Core[Job, Event, Action] = Core(
    step=kinds.step,
    next_deadline=kinds.next_deadline,
    woke=Woke,
    stalled=Stalled,
    failed=ActionFailed,
    describe=kinds.describe,
    check=kinds.check,
)
