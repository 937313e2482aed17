"""Which checkpoint in the members' memories a new world begins from, and who of it must be given what before.

Pure functions over what the members said is whole in their memory. A replicated state is the same on all ranks, so that
any copy of a version serves everyone. A sharded one is whole where each rank's part is with somebody, its owner or the
partner that holds a copy, in a world of the same size. A version is a step and the generation that saved it: versions
are never mixed.

Of the marked path rank 0 alone has saved, and any copy serves everyone. There the later generation wins, however many
saves an earlier one has made: what it saved went on from where the earlier one had ended.
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
        return f"save {self.step} of the marked path" if self.marked else f"the checkpoint of step {self.step}"


class Need(NamedTuple):
    """A copy that a member has to be given."""

    rank: int
    local_rank: int
    source: MemberId
    length: int


def newest(places: Iterable[Place], world_size: int, copies: Copies) -> Version | None:
    """The one that the next world can have; None where there is none."""
    places = list(places)
    found = [v for v in (_replicated(places, copies), _sharded(world_size, copies)) if v is not None]
    return max(found, default=None) or max(set().union(*_marked(places, copies)), key=_age, default=None)


def begun_from(places: Iterable[Place], copies: Copies) -> Version | None:
    """The newest save of the marked path that every member of a world has: all its ranks begin from that one."""
    each = _marked(places, copies)
    return max(set.intersection(*each), key=_age, default=None) if each else None


def _marked(places: Iterable[Place], copies: Copies) -> list[set[Version]]:
    return [{_version(copy) for copy in copies.get(place.member, ()) if copy.marked} for place in places]


def _age(version: Version) -> tuple[Generation, int]:
    return version.generation, version.step


def _version(copy: Copy) -> Version:
    return Version(copy.step, copy.generation, copy.sharded, copy.marked)


def _replicated(places: Sequence[Place], copies: Copies) -> Version | None:
    """One that everybody has who has any: nothing is to be given to them. Else the newest that anybody has."""
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
    """By member, in the order of the world; who has all of its own is not in it."""
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
    """Its owner gives a rank's copy before its partner does: it has the other half of its own work."""
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
    """Members whose sharded copies the next one of the world does not hold, with the bytes of each."""
    places = list(places)
    length = {c.rank: c.length for of_member in copies.values() for c in of_member if _version(c) == version}
    found = {}
    for place, holder in zip(places, [*places[1:], *places[:1]], strict=True):
        ranks = range(place.first_rank, place.first_rank + place.nproc)
        held = {copy.rank for copy in copies.get(holder.member, ()) if copy.held and _version(copy) == version}
        if holder is not place and not held.issuperset(ranks):
            found[place.member] = sum(length.get(rank, 0) for rank in ranks)
    return found
