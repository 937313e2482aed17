"""A job that is switched off, or only observed: its worker processes are left alone, and known all the same.

The master says so, and it holds until a master says otherwise: losing the link, or a master that does not know the job
yet, changes nothing. Nothing here then stops a worker process by itself, and so another world cannot be kept from
running beside one that was cut off: nobody starts one. What the platform orders is done as ever.

Where all worker processes of a member have ended, nobody will order its end, so its container ends as it would without
us: with the code of the first that failed, else with 0.
"""

from __future__ import annotations

from outrider.sidecar.core import member_end
from outrider.sidecar.core.actions import Action, Announce
from outrider.sidecar.core.state import Phase, State
from outrider.wire.messages.generation import WorkerExit

SIGNALLED = 128
"""A shell's code for a command that a signal has ended is this and the signal's number."""


def told(state: State, hands_off: bool, reason: str) -> list[Action]:
    """What the master has said last; one line where it is news."""
    before, state.hands_off = state.hands_off, hands_off
    if before == hands_off:
        return []
    text = f"worker processes are left alone from now on: {reason}" if hands_off else "this member is supervised again"
    return [Announce("HandsOff" if hands_off else "Supervised", text, state.generation)]


def look(state: State, now: float) -> list[Action]:
    """At the end of each step: is nothing left to be left alone?"""
    work = state.work
    if not state.hands_off or work is None or state.phase not in (Phase.RUNNING, Phase.DONE):
        return []
    if not work.pids or work.alive or work.doubt or (state.ending is not None and state.ending.exit_code is not None):
        return []
    code = next((code_of(end) for end in _in_order(state) if end.code != 0), 0)
    reason = f"all worker processes of generation {work.generation} have ended, and nobody supervises this member"
    return member_end.end_trainer(state, code, reason, now)


def _in_order(state: State) -> list[WorkerExit]:
    """The first that ended first."""
    work = state.work
    return [] if work is None else [work.exits[rank] for rank in sorted(work.exits, key=work.heard_at.__getitem__)]


def code_of(end: WorkerExit) -> int:
    return end.code if end.code is not None else SIGNALLED + (end.signal or 0)
