"""Admission: a job gets room for its minimum number of members at once, or queues without any pod.

A scheduler that places one pod after the other can give two jobs half of what each needs, and both would keep that
forever. So if several jobs lack room for their minimum, the oldest keeps its pods. The others delete theirs and queue
behind it (`k8s.elasticjob.queueing` decides the order). Members that have trained keep their pods and the contents of
their memory.
"""

from __future__ import annotations

from outrider.master.core.events import TurnTold
from outrider.master.core.generation import formation, readiness
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.text import counted
from outrider.wire.ids import NO_GENERATION


def lacks_room(state: State) -> bool:
    """Whether no member has trained yet, some find no room, and those with room are fewer than the minimum."""
    if (
        state.stage != GATHERING
        or state.placement.suspended
        or state.ends
        or state.spec.is_adopted
        or state.placement.waits_behind
    ):
        return False
    there = [member for member in state.members.values() if member.is_usable]
    if any(member.ordered > NO_GENERATION for member in there):
        return False
    return any(m.unschedulable for m in there) and _placed(state) < state.spec.min_members


def _placed(state: State) -> int:
    return sum(member.is_usable and not member.unschedulable for member in state.members.values())


def admission_changed(state: State, event: TurnTold) -> None:
    """Queues the job behind another one, or admits it."""
    if state.ends or state.placement.suspended or event.behind == state.placement.waits_behind:
        return
    if event.behind and not lacks_room(state):
        return  # the job has found room meanwhile
    if event.behind:
        _queue(state, event.behind)
    else:
        _admit(state)
    readiness.note_staffing(state)
    state.mark_status()


def _queue(state: State, behind: str) -> None:
    placed, least = _placed(state), state.spec.min_members
    state.placement.waits_behind, state.message = behind, ""
    state.placement.forget_losses()
    text = f"There is room for {placed} of the {counted(least, 'member')} that a generation needs"
    text += f": the job {formation.waits_behind(state, behind)}. The pods of this job are deleted until it is admitted."
    state.announce("WaitingForCapacity", text, warning=True)


def _admit(state: State) -> None:
    other = formation.neighbour(state, state.placement.waits_behind)
    state.announce("CapacityRequested", f"The job is no longer queued behind {other}; its pods are requested again.")
    forget(state)


def forget(state: State) -> None:
    """Takes the job out of the queue."""
    if state.placement.waits_behind:
        state.placement.waits_behind = ""
        state.placement.forget_losses()
