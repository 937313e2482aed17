"""The functions of the master's core that the pump calls."""

from __future__ import annotations

from outrider.master.core import job_kinds
from outrider.master.core.actions import Action
from outrider.master.core.events import ActionFailed, Event, Stalled, Woke
from outrider.master.core.job_kinds import Job
from outrider.runtime.pump import Core

CORE: Core[Job, Event, Action] = Core(
    step=job_kinds.step,
    next_deadline=job_kinds.next_deadline,
    woke=Woke,
    stalled=Stalled,
    failed=ActionFailed,
    describe=job_kinds.describe,
    check=job_kinds.check,
)
