"""Pods that say their own rank index. Another controller counts them (an Indexed Job, a JobSet), and makes a pod anew
while the one before it still terminates.

Who says its rank index gets that one and no other, and where somebody who says it goes, nobody else is put in its
place. It waits for it until whoever has it is no more, or cannot be part of another world while this one could. Who has
it and said nothing was given it because it was free, and gets another.
"""

from __future__ import annotations

from outrider.master.core.generation import readiness
from outrider.master.core.placement import rank_index as placement_rank_index
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import RankIndex


def is_spare(member: Member) -> bool:
    """Any place may be its."""
    return member.rank_index is None and member.own_index is None


def settle(state: State) -> None:
    """Gives those their places who have waited for them."""
    waiting = [m for m in sorted(state.members.values(), key=placement_rank_index.age) if _waits(m)]
    if not waiting:
        return
    holders = {m.rank_index: m for m in state.members.values() if m.rank_index is not None}
    for member in waiting:
        place = member.own_index
        assert place is not None
        holder = holders.get(place)
        if holder is None or (readiness.can_start(member) and _gives_way(holder)):
            placement_rank_index.promote(state, member, place, holder)
            holders[place] = member
            if holder is not None and holder.own_index is None:
                _give_another(state, holder, holders, waiting)


def came(state: State, member: Member) -> None:
    """A new pod: a word where two that stay say the same, which is a mistake of whoever wrote it there."""
    holder = placement_rank_index.holder_of(state, member.own_index) or member
    if _waits(member) and not _gives_way(holder):
        text = f"{member.id} says rank index {member.own_index}, which {holder.id} says and has: it waits for its end."
        state.announce("RankIndexConflict", text, member.id, warning=True)


def _waits(member: Member) -> bool:
    return member.own_index is not None and member.rank_index is None and member.is_usable


def _gives_way(holder: Member) -> bool:
    return not holder.is_usable or holder.own_index is None


def _give_another(state: State, member: Member, holders: dict[RankIndex, Member], waiting: list[Member]) -> None:
    """The lowest that is nobody's and that nobody waits for; where there is none it stands by."""
    said = {m.own_index for m in waiting}
    free = (r for r in map(RankIndex, state.indexes) if r not in holders and r not in said)
    place = next(free, None)
    if place is not None and member.is_usable:
        placement_rank_index.promote(state, member, place, None)
        holders[place] = member
