"""Pods that ended with code 0 on the order of an earlier master.

A sidecar lets its trainer end like that when a master orders it to finish after success, and a master does that only
when all ranks of a generation have ended with 0. If that master died or was paused before it could save this, its
successor sees only pods that succeed. Such an end is not a fault, and no controller creates the pod again: a Job counts
it as completed. So it counts as a report that the pod's ranks ended with 0, and a generation whose pods have all ended
like that has succeeded. If another fault comes in between, the job has still succeeded: otherwise it would wait for
pods that are never created.
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
    """Whether the member belonged to a generation of an earlier master, so that its end with 0 proves success.

    A member that was ordered to leave also ends with 0, which proves nothing.
    """
    if member.leaving or member.deleting or member.is_stranger:
        return False
    if state.stage == REBUILDING:
        places = cast("list[Mapping[str, object]]", (state.earlier.saved_world or {}).get("places") or [])
        return any(place["member"] == member.id for place in places)
    world = state.world
    if world is not None and member.id in world.places:
        return world.generation.term < state.term
    return member.ordered > NO_GENERATION and member.ordered.term < state.term


def has_succeeded(state: State, member: Member) -> None:
    """Records the member as finished; no further message from it is expected."""
    failure_detector.forget(state, member)
    member.finished = True
    if state.stage == RUNNING:
        recovery.member_done(state, member)
    else:
        state.announce(
            "MemberSucceeded", f"{member.id} ended with code 0 on the order of an earlier master.", member.id
        )
    readiness.stop_waiting_for(state, member)


def advance(state: State) -> None:
    """Ends the job as succeeded if, between two generations, a member has ended with 0 on an earlier master's order."""
    if state.stage != GATHERING or state.is_over:
        return
    ended = [state.members[each] for each in sorted(state.placement.ended_well) if each in state.members]
    done = [m.id for m in ended if m.finished and m.pod_phase == ENDED_WELL and not m.is_stranger]
    if done:
        names = ", ".join(done)
        generation_job_end.succeed(
            state, f"All ranks ended with code 0 under an earlier master: {names} ended on its order."
        )
