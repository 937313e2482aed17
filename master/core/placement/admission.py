"""The least members that a job needs are placed together, or it waits its turn without any.

A scheduler that places one pod after the other may give two jobs half of what each needs, and both would hold that for
ever. So where several jobs lack room for their least, the oldest keeps what it has; the others give their pods back and
wait behind it (`k8s.elasticjob.queueing` says who). Members that have trained keep their pods, and what is in their
memory.
"""

from __future__ import annotations

from outrider.master.core.events import TurnTold
from outrider.master.core.generation import formation, readiness
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.text import counted
from outrider.wire.ids import NO_GENERATION


def lacks_room(state: State) -> bool:
    """None of its members has trained, some find no room, and those that have some are fewer than a world needs."""
    if (
        state.stage != GATHERING
        or state.placement.suspended
        or state.ends
        or state.spec.is_adopted
        or state.placement.waits_behind
    ):
        return False
    there = [member for member in state.members.values() if member.is_usable]
    if any(member.told > NO_GENERATION for member in there):
        return False
    return any(m.unschedulable for m in there) and _placed(state) < state.spec.min_members


def _placed(state: State) -> int:
    return sum(member.is_usable and not member.unschedulable for member in state.members.values())


def told(state: State, event: TurnTold) -> None:
    """Behind whom it waits from now on, or that it is its turn."""
    if state.ends or state.placement.suspended or event.behind == state.placement.waits_behind:
        return
    if event.behind and not lacks_room(state):
        return  # it has found room meanwhile
    if event.behind:
        _wait(state, event.behind)
    else:
        _go(state)
    readiness.note_staffing(state)
    state.mark_status()


def _wait(state: State, behind: str) -> None:
    placed, least = _placed(state), state.spec.min_members
    state.placement.waits_behind, state.message = behind, ""
    state.placement.forget_losses()
    text = f"There is room for {placed} of the {counted(least, 'member')} that a world needs"
    text += f": the job {formation.waits_behind(state, behind)}. Its pods are given back meanwhile."
    state.announce("WaitingForCapacity", text, warning=True)


def _go(state: State) -> None:
    who = formation.neighbour(state, state.placement.waits_behind)
    state.announce("CapacityRequested", f"The job has waited behind {who}; its pods are asked for again.")
    forget(state)


def forget(state: State) -> None:
    """It waits behind nobody."""
    if state.placement.waits_behind:
        state.placement.waits_behind = ""
        state.placement.forget_losses()
