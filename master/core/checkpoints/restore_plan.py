"""Which in-memory checkpoint a new generation begins from, and which members must receive which copies first.

Pure functions over what members reported as complete in their memory. A replicated state is the same on all ranks, so
any copy of a version serves every rank. A sharded state is complete if some member has the part of each rank, its owner
or the partner with the replica, and the world size is the same. A version is a step and the generation that saved it:
versions are never mixed.

The checkpoint path is saved by rank 0 alone, and any copy serves every rank. There the later generation wins, however
many saves an earlier one has made: it resumed from where the earlier one ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from outrider.master.core.state.generation import Place
from outrider.wire.ids import Generation, MemberId
from outrider.wire.messages.checkpoints import Copy

Copies = Mapping[MemberId, Sequence[Copy]]


class Version(NamedTuple):
    step: int
    generation: Generation
    sharded: bool
    marked: bool = False

    @property
    def name(self) -> str:
        return f"save {self.step} of the checkpoint path" if self.marked else f"the checkpoint of step {self.step}"


class Need(NamedTuple):
    """A copy that a member has to receive."""

    rank: int
    local_rank: int
    source: MemberId
    length: int


def newest(places: Iterable[Place], world_size: int, copies: Copies) -> Version | None:
    """The newest version that the next generation can load; None if there is none."""
    places = list(places)
    found = [v for v in (_replicated(places, copies), _sharded(world_size, copies)) if v is not None]
    return max(found, default=None) or max(set().union(*_marked(places, copies)), key=_age, default=None)


def begun_from(places: Iterable[Place], copies: Copies) -> Version | None:
    """The newest save of the checkpoint path that every member of a generation has: all its ranks begin from it."""
    each = _marked(places, copies)
    return max(set.intersection(*each), key=_age, default=None) if each else None


def _marked(places: Iterable[Place], copies: Copies) -> list[set[Version]]:
    return [{_version(copy) for copy in copies.get(place.member, ()) if copy.marked} for place in places]


def _age(version: Version) -> tuple[Generation, int]:
    return version.generation, version.step


def _version(copy: Copy) -> Version:
    return Version(copy.step, copy.generation, copy.sharded, copy.marked)


def _replicated(places: Sequence[Place], copies: Copies) -> Version | None:
    """The newest version that all members with any version have, so that these need no transfer.

    If there is none, the newest version of any member.
    """
    each = [
        {_version(copy) for copy in copies.get(place.member, ()) if not copy.sharded and not copy.marked}
        for place in places
    ]
    some = [versions for versions in each if versions]
    if not some:
        return None
    return max(set.intersection(*some) or set.union(*some))


def _sharded(world_size: int, copies: Copies) -> Version | None:
    ranks: dict[Version, set[int]] = {}
    for copy in (copy for of_member in copies.values() for copy in of_member):
        if copy.sharded and copy.world == world_size:
            ranks.setdefault(_version(copy), set()).add(copy.rank)
    return max((version for version, known in ranks.items() if len(known) == world_size), default=None)


def needs(version: Version, places: Iterable[Place], copies: Copies) -> dict[MemberId, list[Need]]:
    """The copies that each member has to receive, in the order of the generation; without members that lack none."""
    places = list(places)
    return _needs_of_ranks(version, places, copies) if version.sharded else _needs_of_any(version, places, copies)


def _needs_of_any(version: Version, places: Sequence[Place], copies: Copies) -> dict[MemberId, list[Need]]:
    having = [
        (place.member, copy) for place in places for copy in copies.get(place.member, ()) if _version(copy) == version
    ]
    have = {member for member, _copy in having}
    lacking = [place.member for place in places if place.member not in have]
    found = {}
    for number, member in enumerate(lacking):
        source, copy = having[number % len(having)]
        found[member] = [Need(copy.rank, 0, source, copy.length)]
    return found


def _needs_of_ranks(version: Version, places: Sequence[Place], copies: Copies) -> dict[MemberId, list[Need]]:
    """The missing parts of a sharded version; the owner of a part is preferred to the partner with the replica."""
    where: dict[int, list[tuple[bool, MemberId, int]]] = {}
    for place in places:
        for copy in copies.get(place.member, ()):
            if _version(copy) == version:
                where.setdefault(copy.rank, []).append((copy.held, place.member, copy.length))
    found: dict[MemberId, list[Need]] = {}
    for place in places:
        for local_rank in range(place.nproc):
            rank = place.first_rank + local_rank
            holders = where.get(rank, [])
            if holders and (False, place.member) not in [(held, member) for held, member, _length in holders]:
                _held, source, length = min(holders)
                found.setdefault(place.member, []).append(Need(rank, local_rank, source, length))
    return found


def unheld(version: Version, places: Iterable[Place], copies: Copies) -> dict[MemberId, int]:
    """Members whose sharded parts are not replicated on the next member of the generation, with the bytes of each."""
    places = list(places)
    length = {c.rank: c.length for of_member in copies.values() for c in of_member if _version(c) == version}
    found = {}
    for place, holder in zip(places, [*places[1:], *places[:1]], strict=True):
        ranks = range(place.first_rank, place.first_rank + place.nproc)
        held = {copy.rank for copy in copies.get(holder.member, ()) if copy.held and _version(copy) == version}
        if holder is not place and not held.issuperset(ranks):
            found[place.member] = sum(length.get(rank, 0) for rank in ranks)
    return found
