"""Pods that have ended with code 0 by another master's word.

A sidecar lets its trainer end so when it is told that the job has succeeded, and a master says that only when all ranks
of a world have ended with 0. Where that master died before it could save this, or was paused and is history by now,
the one that follows sees nothing but pods that succeed. Such an end is no fault, and nobody makes the pod anew: a Job
counts it as completed. So it is as good as the word of its ranks, and a world of which all have ended has succeeded.
Where another fault comes between, the job has succeeded all the same: it would wait for pods that never come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from outrider.master.core.faults import recovery
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import readiness
from outrider.master.core.membership import failure_detector
from outrider.master.core.state.job import GATHERING, REBUILDING, RUNNING, State
from outrider.master.core.state.member import ENDED_WELL, Member
from outrider.wire.ids import NO_GENERATION


def was_told_elsewhere(state: State, member: Member) -> bool:
    """It was in a world of an earlier master. One that is told to leave ends so too, and proves nothing."""
    if member.leaving or member.deleting or member.is_stranger:
        return False
    if state.stage == REBUILDING:
        places = cast("list[Mapping[str, object]]", (state.earlier.saved_world or {}).get("places") or [])
        return any(place["member"] == member.id for place in places)
    world = state.world
    if world is not None and member.id in world.places:
        return world.generation.term < state.term
    return member.told > NO_GENERATION and member.told.term < state.term


def has_succeeded(state: State, member: Member) -> None:
    """It is kept as what it is: nothing more is to be heard of it."""
    failure_detector.forget(state, member)
    member.finished = True
    if state.stage == RUNNING:
        recovery.member_done(state, member)
    else:
        state.announce(
            "MemberSucceeded", f"{member.id} has ended with code 0, as an earlier master told it to.", member.id
        )
    readiness.stop_waiting_for(state, member)


def advance(state: State) -> None:
    """Between two worlds: one of the job's has ended well, so there is no other to come."""
    if state.stage != GATHERING or state.is_over:
        return
    ended = [state.members[each] for each in sorted(state.placement.ended_well) if each in state.members]
    done = [m.id for m in ended if m.finished and m.pod_phase == ENDED_WELL and not m.is_stranger]
    if done:
        names = ", ".join(done)
        generation_job_end.succeed(
            state, f"An earlier master has seen all ranks end with code 0: {names} ended by its word."
        )
