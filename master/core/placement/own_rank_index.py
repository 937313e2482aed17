"""Pods that name their own rank index, because another controller numbers them (an Indexed Job, a JobSet).

Such a controller creates a replacement while the pod before it still terminates. A member that names a rank index gets
that one and no other, and no other member fills it when such a member is lost. The member waits for it while another
member that named it too is usable. It takes the index once that member is gone, or is unusable while the new one can
start. A holder that did not name the index has it only because it was vacant, and gets another one.
"""

from __future__ import annotations

from outrider.master.core.generation import readiness
from outrider.master.core.placement import rank_index as placement_rank_index
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import RankIndex


def is_spare(member: Member) -> bool:
    """Whether the member may get any rank index."""
    return member.rank_index is None and member.own_index is None


def settle(state: State) -> None:
    """Assigns rank indexes to the members that wait for the one they named."""
    waiting = [m for m in sorted(state.members.values(), key=placement_rank_index.age) if _waits(m)]
    if not waiting:
        return
    holders = {m.rank_index: m for m in state.members.values() if m.rank_index is not None}
    for member in waiting:
        index = member.own_index
        assert index is not None
        holder = holders.get(index)
        if holder is None or (readiness.can_start(member) and _gives_way(holder)):
            placement_rank_index.promote(state, member, index, holder)
            holders[index] = member
            if holder is not None and holder.own_index is None:
                _give_another(state, holder, holders, waiting)


def came(state: State, member: Member) -> None:
    """Reports two pods that name the same rank index and both stay: a mistake of the controller that set it."""
    holder = placement_rank_index.holder_of(state, member.own_index) or member
    if _waits(member) and not _gives_way(holder):
        text = f"{member.id} and {holder.id} both name rank index {member.own_index}: {holder.id} has it, and "
        text += f"{member.id} waits until {holder.id} ends. Delete one of the two pods."
        state.announce("RankIndexConflict", text, member.id, warning=True)


def _waits(member: Member) -> bool:
    return member.own_index is not None and member.rank_index is None and member.is_usable


def _gives_way(holder: Member) -> bool:
    return not holder.is_usable or holder.own_index is None


def _give_another(state: State, member: Member, holders: dict[RankIndex, Member], waiting: list[Member]) -> None:
    """Assigns the lowest rank index that is vacant and that no member waits for; without one, the member is a spare."""
    named = {m.own_index for m in waiting}
    free = (r for r in map(RankIndex, state.indexes) if r not in holders and r not in named)
    index = next(free, None)
    if index is not None and member.is_usable:
        placement_rank_index.promote(state, member, index, None)
        holders[index] = member
