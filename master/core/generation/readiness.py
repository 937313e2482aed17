"""Readiness: whether a member is ready for a generation, coming soon, or neither.

Every change of a member refreshes these sets in O(1), so that a message never costs a walk over all members.
"""

from __future__ import annotations

from outrider.master.core.state.job import RUNNING, STOPPING, State
from outrider.master.core.state.member import ALIVE, ENDED_WELL, Member
from outrider.wire.ids import MemberId


def refresh(state: State, member: Member) -> None:
    """Puts the member into the sets where it belongs now, and requests a look at the job."""
    state.membership.crowd.note(member)
    if member.rank_index is not None:
        state.account.changed.add(member.rank_index)
    is_prepared = can_take_orders(member)
    is_ready = is_prepared and not member.check_wanted
    is_blocked = member.unschedulable or member.cannot_start or member.overdue or member.is_stranger
    is_coming = member.is_usable and not is_ready and not is_blocked
    _put(state.ready, member, is_ready)
    _put(state.coming, member, is_coming)
    _put(state.unchecked, member, is_prepared and not is_ready)
    if not member.is_usable or member.trainer_lost:
        state.nodecheck.lose(member.id)
    world = state.world
    if world is not None and state.stage == STOPPING and member.id in world.waiting:
        has_stopped = member.stopped >= world.generation
        if is_prepared or (has_stopped and not member.is_usable):
            world.waiting.discard(member.id)
    if world is not None and state.stage == RUNNING and is_ready and member.id not in world.places:
        note_resize(state)
    if is_ready and member.rank_index is None:
        state.unstaffed = True
    stir(state)


def can_start(member: Member) -> bool:
    """Whether a Start can be sent to the member now."""
    return can_take_orders(member) and not member.check_wanted


def can_take_orders(member: Member) -> bool:
    """Whether the member is connected, has no process of an older generation, and offers an unused port.

    A member that only its peers still reach cannot receive an order.
    """
    cut_off = member.suspicion is not None and member.suspicion.is_of_the_master_only
    return member.is_usable and member.session is not None and member.ready is not None and not cut_off


def is_worth_waiting_for(member: Member) -> bool:
    """Whether the member's Stopped and Ready will come within moments: it and its template or launcher live.

    A member whose pod is being deleted sends at least Stopped while it is connected and not suspected: its ranks run
    until they are ordered to stop or its grace period ends.
    """
    cut_off = member.suspicion is not None and member.suspicion.is_of_the_master_only
    is_there = not member.deleting or (member.session is not None and member.suspicion is None)
    return (
        member.life == ALIVE and is_there and not member.trainer_lost and not cut_off and member.pod_phase != ENDED_WELL
    )


def wait_again(state: State, member: Member) -> None:
    """Waits again for a member that was silent when the stop was ordered and is heard now.

    It stops like the other members and can continue with them.
    """
    world = state.world
    if world is None or state.stage != STOPPING or member.id not in world.places:
        return
    if member.stopped < world.generation and is_worth_waiting_for(member):
        world.waiting.add(member.id)


def stop_waiting_for(state: State, member: Member) -> None:
    """Lets the next generation form without the member's Stopped."""
    if state.world is not None:
        state.world.waiting.discard(member.id)
    stir(state)


def stir(state: State) -> None:
    """Requests a look at the whole job at the end of the step."""
    state.stirred = True


def note_resize(state: State) -> None:
    """Notes that a generation of another size may have become possible."""
    state.unsized = True
    stir(state)


def note_staffing(state: State) -> None:
    """Notes that a member came, went, or is suspected."""
    state.unstaffed = True
    stir(state)


def _put(members: set[MemberId], member: Member, belongs: bool) -> None:
    if belongs:
        members.add(member.id)
    else:
        members.discard(member.id)
