"""The sidecar's access to a member's in-memory checkpoints, the file `checkpoints` in its volume.

`training_hooks.abi.arena` defines the layout. The ranks map the file and its pages count as their memory. The sidecar
maps nothing: it reads and writes in pieces, and only into existing pages. It writes into own slots only while no rank
runs here; replica slots are written by the sidecar alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from outrider.wire.ids import Generation
from outrider.wire.messages.checkpoints import Copy
from training_hooks.abi import arena as layout
from training_hooks.abi.arena import MARKED, PAGE, SHARDED, SLOTS, Division, Head, Unusable


@dataclass(frozen=True, slots=True)
class Place:
    """A slot, and the head of the complete, sealed checkpoint in it (None: there is none)."""

    division: Division
    slot: int
    head: Head | None

    @property
    def payload(self) -> int:
        return layout.place(self.division, self.slot) + PAGE


class Arena:
    """The memory, opened for one use: the file may have been replaced by the next time."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def division(self) -> Division | None:
        """The memory's division into slots; None if nothing is stored yet. Raises Unusable."""
        return layout.division(self.fd)

    def divide(self, kind: int, nproc: int) -> Division:
        """Divides the memory as the ranks would; another division is cleared. Call it only while no rank runs."""
        return layout.divide(self.fd, kind, nproc)

    def keep(self, step: int) -> None:
        """Protects the checkpoints of this step, which every rank has, from being overwritten before a newer one."""
        if self.division() is not None:
            layout.keep(self.fd, step)

    def places(self, division: Division) -> Iterator[Place]:
        for slot in range(division.slots):
            yield Place(division, slot, self._head(division, slot))

    def _head(self, division: Division, slot: int) -> Head | None:
        head = layout.head(self.fd, division, slot)
        return head if head is not None and head.sealed else None

    def find(self, rank: int, version: tuple[int, int], sharded: bool) -> Place | None:
        """A checkpoint of this step and generation for this rank; any rank's, if all ranks have the same state."""
        division = self.division()
        for place in self.places(division) if division is not None else ():
            head = place.head
            if head is None or (head.step, head.generation) != version or (head.kind == SHARDED) != sharded:
                continue
            if not sharded or head.rank == rank:
                return place
        return None

    def is_still(self, place: Place) -> bool:
        """Whether the slot is unchanged since it was found."""
        return place.head is not None and self._head(place.division, place.slot) == place.head

    def target(self, division: Division, local_rank: int, held: bool) -> Place:
        """The slot for a checkpoint from another member: never the one of the protected step, otherwise of the
        newest."""
        is_held = held and division.kind == SHARDED
        mine = layout.held(local_rank) if is_held else layout.own(division.kind, local_rank)
        slot = layout.next_slot(self.fd, division, [each for each in mine if each < division.slots])
        if slot is None:
            raise Unusable(f"the memory for checkpoints has no slots for local rank {local_rank}")
        return Place(division, slot, self._head(division, slot))

    def begin(self, place: Place) -> int:
        """Invalidates the slot until it gets a head again; returns the sequence number for that head."""
        return layout.begin(self.fd, place.division, place.slot)

    def put(self, place: Place, head: Head) -> None:
        layout.put(self.fd, place.division, place.slot, head)


@contextmanager
def opened(path: Path) -> Iterator[Arena]:
    """Opens the memory. Raises Unusable if there is none."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise Unusable("this member has no memory for checkpoints (checkpointMemory is not set)") from error
    try:
        yield Arena(fd)
    finally:
        os.close(fd)


def copies(path: Path) -> tuple[Copy, ...]:
    """The complete checkpoints in the memory; empty if the memory does not exist or cannot be read."""
    with suppress(Unusable, OSError), opened(path) as arena:
        division = arena.division()
        if division is not None:
            return tuple(_copy(place.slot, place.head) for place in arena.places(division) if place.head is not None)
    return ()


def _copy(slot: int, head: Head) -> Copy:
    generation = Generation(head.generation >> 32, head.generation & 0xFFFFFFFF)
    is_held = head.kind == SHARDED and slot % SLOTS[SHARDED] >= 2
    is_sharded, is_marked = head.kind == SHARDED, head.kind == MARKED
    return Copy(head.rank, head.step, is_sharded, head.world, generation, head.length, is_held, is_marked)
