"""A job that is switched off or only observed: the sidecar tracks its worker processes but never stops them.

The master orders this, and it holds until a master orders otherwise; a lost link, or a master that does not know the
job yet, changes nothing. So self-fencing is off too, which is safe because no master starts another generation of such
a job. Orders of the platform (SIGTERM) are followed as before.

When all worker processes of a member have ended, no master will order its end. So its container ends as without
Outrider: with the code of the first process that failed, otherwise with 0.
"""

from __future__ import annotations

from outrider.sidecar.core import member_end
from outrider.sidecar.core.actions import Action, Announce
from outrider.sidecar.core.state import Phase, State
from outrider.wire.messages.generation import WorkerExit

SIGNALLED = 128
"""Added to a signal's number, the shell's exit code for a command that the signal has ended."""


def ordered(state: State, hands_off: bool, reason: str) -> list[Action]:
    """Follows the master's latest order; one line in the log if it has changed."""
    before, state.hands_off = state.hands_off, hands_off
    if before == hands_off:
        return []
    text = f"worker processes are not supervised from now on: {reason}" if hands_off else "supervision has resumed"
    return [Announce("HandsOff" if hands_off else "Supervised", text, state.generation)]


def look(state: State, now: float) -> list[Action]:
    """Ends the trainer, at the end of each step, if all its worker processes have ended."""
    work = state.work
    if not state.hands_off or work is None or state.phase not in (Phase.RUNNING, Phase.DONE):
        return []
    if not work.pids or work.alive or work.doubt or (state.ending is not None and state.ending.exit_code is not None):
        return []
    code = next((code_of(end) for end in _in_order(state) if end.code != 0), 0)
    reason = f"all worker processes of generation {work.generation} have ended, and this member is not supervised"
    return member_end.end_trainer(state, code, reason, now)


def _in_order(state: State) -> list[WorkerExit]:
    """The ends of the worker processes, in the order in which they were reported."""
    work = state.work
    return [] if work is None else [work.exits[rank] for rank in sorted(work.exits, key=work.heard_at.__getitem__)]


def code_of(end: WorkerExit) -> int:
    return end.code if end.code is not None else SIGNALLED + (end.signal or 0)
