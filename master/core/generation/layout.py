"""The members of a generation and their ranks, ordered by role, then by rank index.

A replacement gets its predecessor's ranks, and a member keeps its own as long as no member before it comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.master.core.state.generation import Place
from outrider.master.core.state.member import Member
from outrider.wire.ids import MemberId, RankIndex, Role

ROLE_ORDER = {"chief": 0, "master": 1, "worker": 2, "ps": 3, "evaluator": 4}


def choose(candidates: Iterable[Member], indexes: range, node_unit: int) -> list[Member]:
    """The members of the next generation in rank order: those with one of these rank indexes, in whole units."""
    chosen = [m for m in candidates if m.rank_index is not None and m.rank_index in indexes]
    chosen.sort(key=_rank_order)
    return chosen[: len(chosen) - len(chosen) % max(node_unit, 1)]


def places(members: list[Member]) -> dict[MemberId, Place]:
    """Assigns each member its group rank and its ranks."""
    role_sizes: dict[Role, int] = {}
    for member in members:
        role_sizes[member.role] = role_sizes.get(member.role, 0) + member.nproc
    result: dict[MemberId, Place] = {}
    first_rank = 0
    role_first: dict[Role, int] = {}
    for group_rank, member in enumerate(members):
        in_role = role_first.get(member.role, 0)
        rank_index = member.rank_index if member.rank_index is not None else RankIndex(group_rank)
        result[member.id] = Place(
            member.id, member.role, rank_index, group_rank, first_rank, member.nproc, in_role, role_sizes[member.role]
        )
        first_rank += member.nproc
        role_first[member.role] = in_role + member.nproc
    return result


def _rank_order(member: Member) -> tuple[int, str, int, str]:
    index = member.rank_index if member.rank_index is not None else -1
    return (ROLE_ORDER.get(member.role, len(ROLE_ORDER)), member.role, index, member.id)
