"""The work of one rank for `checkpoint.load`: offer its versions, get the one that all ranks chose, and resume there.

A copy in memory is valid only if its checksum is right; a damaged one is reported and skipped. Copies that are newer
than the chosen version belong to steps that will be repeated, and are discarded.
"""

import time

from ..abi import arena
from . import storage_tier, version_agreement
from .memory_save import CheckpointError
from .reservation import mebibytes

LOADED = "state loaded"
MOST_TRIES = 8


class Loading:
    """One call of load() on one rank."""

    def __init__(self, rank, path, map_location, kind):
        self.rank, self.path, self.map_location, self.kind = rank, path, map_location, kind
        self.wrong, self.refused = "", set()
        rank.loads += 1
        self.name = "%d/%d" % (rank.generation, rank.loads)
        rank.sealing.wait()
        self._together("come", True, all)  # only now are the last saves of all ranks among the copies
        self.copies = self._copies()
        self.stored = self._stored()

    # -- what this rank can have --------------------------------------------------------------------------------------
    def _copies(self):
        """This rank's copies in memory, by version."""
        memory, rank = self.rank.memory, self.rank
        if memory is None:
            return {}
        try:
            kind = memory.kind()
            found = memory.copies(self.kind)
        except arena.Unusable as error:
            rank.warn("%s; the next save initializes it again" % error)
            return {}
        if kind not in (None, self.kind):
            self.wrong = "sharded: Invalid value: %s: the state in memory was saved with sharded=%s" % (
                self.kind == arena.SHARDED, kind == arena.SHARDED,
            )  # fmt: skip
        fits = [each for each in found if self.kind != arena.SHARDED or _of(each) == (rank.rank, rank.world)]
        return {(each.head.step, each.head.generation): each for each in reversed(fits)}

    def _stored(self):
        """Versions."""
        if self.path is None:
            return set()
        if self.kind == arena.SHARDED:
            return set(storage_tier.versions(self.path, self.rank.world))
        try:
            found = storage_tier.version(self.path)
            return {found} if found else set()
        except storage_tier.Unusable as error:
            self.wrong = str(error)
            self.rank.warn(self.wrong)
            return set()

    # -- choosing -----------------------------------------------------------------------------------------------------
    def run(self):
        """(state, step), or None."""
        for attempt in range(MOST_TRIES):
            chosen = self._chosen(attempt)
            if chosen is None:
                self._discard_newer((-1, 0))
                return None
            found = self._get(chosen)
            if self._together("%d/got" % attempt, found is not None, all):
                self._discard_newer(chosen)
                return self._go_on(*found)
            self.refused.add(chosen)
        raise CheckpointError("no version could be loaded on all ranks after %d tries" % MOST_TRIES)

    def _chosen(self, attempt):
        versions = sorted((set(self.copies) | self.stored) - self.refused)
        asks = "%s%s" % (self.path or "memory alone", ", sharded" if self.kind == arena.SHARDED else "")
        offer = {"asks": asks, "versions": versions, "wrong": self.wrong}
        decided = self._together("%d/offer" % attempt, offer, version_agreement.decide)
        if "error" in decided:
            raise CheckpointError(decided["error"])
        return tuple(decided["version"]) if decided["version"] else None

    def _together(self, what, mine, conclude):
        try:
            return version_agreement.together(
                "%s/%s" % (self.name, what), self.rank.world, self.rank.rank, mine, conclude
            )
        except version_agreement.Disagreement as error:
            raise CheckpointError(str(error))

    # -- getting ------------------------------------------------------------------------------------------------------
    def _get(self, version):
        """(saved state, its source, seconds, bytes) of a version, or None if it is damaged."""
        began = time.monotonic()
        if version in self.copies:
            copy = self.copies[version]
            if copy.is_sound():
                enclosed = _unpickled(lambda: copy.state(self.map_location), "step %d in memory" % version[0])
                return enclosed, "this member's memory", time.monotonic() - began, copy.head.length
            self.rank.warn("the copy of step %d in memory is damaged: its checksum is wrong" % version[0])
            copy.discard()
            del self.copies[version]
        if version not in self.stored:
            return None
        place = self.path
        if self.kind == arena.SHARDED:
            place = storage_tier.shard(self.path, version, self.rank.rank, self.rank.world)
        try:
            enclosed = storage_tier.read(place, self.map_location)
        except storage_tier.Unusable as error:
            self.wrong = str(error)
            self.rank.warn(self.wrong)
            return None
        return enclosed, place, time.monotonic() - began, 0

    def _discard_newer(self, chosen):
        if self.kind == arena.SHARDED or self.rank.local_rank == 0:
            for version, copy in self.copies.items():
                if version > chosen:
                    copy.discard()

    def _go_on(self, enclosed, source, seconds, length):
        here, step = self.rank.here, enclosed["step"]
        if here is not None:
            here.goes_on_at(enclosed["counted"])
            if here.data is not None:
                here.data.take_up(enclosed["positions"], source)
        self.rank.newest = step, None
        size = " (%s in %.2f s)" % (mebibytes(length), seconds) if length else ""
        self.rank.report(LOADED, "rank %d loads step %d from %s%s" % (self.rank.rank, step, source, size), step=step)
        return enclosed["state"], step


def _of(copy):
    return copy.head.rank, copy.head.world


def _unpickled(load, what):
    try:
        return load()
    except Exception as error:  # the bytes are those that were saved; this process cannot unpickle them
        raise CheckpointError("%s cannot be loaded: %s: %s" % (what, type(error).__name__, error))
