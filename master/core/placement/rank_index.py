"""Assigns rank indexes to members, and writes the assignment to the pod's label unless its controller already did."""

from __future__ import annotations

from outrider.master.core.actions import PlacePod
from outrider.master.core.generation import readiness
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import RankIndex


def age(member: Member) -> tuple[float, int, str]:
    """A sort key, oldest first."""
    number = member.id.rpartition("-")[2]  # a pod of another owner need not end with a number
    return (member.created_at, int(number) if number.isdigit() else 0, member.id)


def promote(state: State, member: Member, hole: RankIndex, before: Member | None) -> None:
    """Assigns the rank index `hole` to a member, and takes it from `before`."""
    instead = ""
    if before is not None:
        release(state, before)
        instead = f" instead of {before.id}"
        show(state, before, f"{member.id} takes its rank index.")
        readiness.refresh(state, before)
    release(state, member)
    member.rank_index = hole
    add(state, member)
    state.placement.held.add(hole)
    reason = f"{member.id} takes rank index {hole}{instead}."
    state.announce("SparePromoted", reason, member.id)
    show(state, member, reason)
    readiness.refresh(state, member)


def add(state: State, member: Member) -> None:
    """Adds a member, and assigns its rank index to it alone."""
    state.members[member.id] = member
    if member.rank_index is not None:
        state.placement.holders[member.rank_index] = member.id
        state.account.changed.add(member.rank_index)


def release(state: State, member: Member) -> None:
    if member.rank_index is not None:
        state.account.changed.add(member.rank_index)
    if member.rank_index is not None and state.placement.holders.get(member.rank_index) == member.id:
        del state.placement.holders[member.rank_index]
    member.rank_index = None


def remove(state: State, member: Member) -> None:
    """Removes a member that is gone; its object keeps the rank index for the record."""
    index = member.rank_index
    release(state, member)
    member.rank_index = index
    del state.members[member.id]
    state.membership.crowd.forget(member.id)


def holder_of(state: State, rank_index: RankIndex | None) -> Member | None:
    found = None if rank_index is None else state.placement.holders.get(rank_index)
    return None if found is None else state.members[found]


def show(state: State, member: Member, reason: str) -> None:
    """Writes the rank index to the pod's label, unless its controller has set one."""
    if member.uid is not None and member.own_index is None:
        failures = state.placement.failures.get(key(member.rank_index), 0)
        state.act(PlacePod(member.id, member.uid, member.rank_index, state.generation, reason, failures))


def key(rank_index: RankIndex | None) -> int:
    """The key by which failures are counted: the rank index, -1 for spares."""
    return -1 if rank_index is None else int(rank_index)
