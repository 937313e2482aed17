"""torch.load of the checkpoint path: torch itself loads the file, from memory if that version is there.

Before the first save of a generation every rank gets the version that the generation resumes from. The master names the
version that all members have in memory. A newer file on storage, or one that another program wrote, has precedence. The
first rank that loads decides for all. After a save every rank gets that save or a newer one: from memory, or from
storage once it is written. A rank waits for no other rank, only for an announced save.

If no version is in the memory of all members, torch.load reads the file as without Outrider.
"""

import os
import sys
import time

from . import announcements, torch_buffer, version_file
from .memory_load import LOADED
from .memory_save import CheckpointError

PATIENCE, AFTER_FAILURE = 300.0, 10.0
"""Seconds to wait for an announced save, on storage or in this member's memory; and after its write has failed."""
PAUSE = 0.02
TRIES = 8


def load(mine, plain, f, args, kwargs):
    """`plain`: torch's own load; `mine`: the `Marked` of this process; `f`: the file that names the checkpoint path."""
    for _ in range(TRIES):
        copy = _chosen(mine)
        if copy is None:
            break
        is_as_it_was = copy.is_there if copy is mine.last else copy.is_as_found
        try:
            about, file = torch_buffer.opened(copy.view)
            began = time.monotonic()
            found = _from_memory(plain, file, args, kwargs)
        except Exception:
            if is_as_it_was():
                raise
            continue
        if is_as_it_was():
            _go_on(mine, about, copy, time.monotonic() - began)
            return found
    found = plain(f, *args, **kwargs)
    mine.here.loaded(mine.path)
    return found


def _from_memory(plain, file, args, kwargs):
    config = getattr(sys.modules.get("torch.utils.serialization.config"), "load", None)
    is_mapped = kwargs.get("mmap")
    if not (getattr(config, "mmap", False) if is_mapped is None else is_mapped):
        return plain(torch_buffer.Reading(file), *args, **kwargs)
    fd = os.memfd_create("checkpoint")  # torch maps only files that have a name
    try:
        with open(fd, "wb", closefd=False) as out:
            out.write(file)
        return plain("/proc/self/fd/%d" % fd, *args, **kwargs)
    finally:
        os.close(fd)


def _go_on(mine, about, copy, seconds):
    mine.here.goes_on_at(about["counted"])
    if mine.here.data is not None:
        mine.here.data.take_up(about["positions"], "this member's memory")
    message = "rank %d loads save %d (step %d) of %s from this member's memory in %.2f s"
    sentence = message % (mine.rank, about["number"], about["counted"], mine.path, seconds)
    mine.report(LOADED, sentence, step=about["counted"])


# -- which version -----------------------------------------------------------------------------------------------------
def _chosen(mine):
    """The copy in memory to load, or None to load from storage."""
    if mine.memory is None:
        return None
    if mine.last is not None:  # this rank's own last save
        if mine.last.is_there() and version_file.stamp(mine.path) == mine.stamp:
            return mine.last
        mine.settle()
    if mine.number is not None:
        return None
    number = _saved_meanwhile(mine)
    return _begun_from(mine) if number is None else _of_this_generation(mine, number)


def _saved_meanwhile(mine):
    """The number of this generation's newest save, or None if there is none yet."""
    number = mine.announcements.announced(announcements.SAVED)
    if number is not None:
        return number
    return max((each.head.step for each in _made_now(mine)), default=None)


def _made_now(mine):
    return [each for each in mine.copies() if each.head.generation == mine.generation]


def _of_this_generation(mine, number):
    """The copy of that save or of a newer one; None for storage. If the store is gone, rank 0 has ended, and storage
    has its last save."""
    began = time.monotonic()
    while True:
        if _is_foreign(mine):
            return None
        for copy in _made_now(mine):
            if copy.head.step >= number and copy.is_sound():
                return copy
        written = mine.announcements.announced(announcements.WRITTEN)
        failed = mine.announcements.announced(announcements.FAILED)
        if (written or 0) >= number or mine.announcements.announced(announcements.SAVED) is None:
            return None
        if time.monotonic() - began > (AFTER_FAILURE if (failed or 0) >= number else PATIENCE):
            mine.warn(
                "save %d did not arrive at rank %d, which reads %s from storage instead"
                % (number, mine.rank, mine.path)
            )
            return None
        time.sleep(PAUSE)


def _is_foreign(mine):
    try:
        return version_file.read(mine.path)[1] is None
    except OSError:
        return True


def _begun_from(mine):
    begun = version_file.begun_from()
    if begun is None:
        return None
    try:
        of, there = version_file.read(mine.path)
    except OSError:  # there is no file: torch reports it
        return None
    is_torn = there is None and torch_buffer.is_torn(mine.path)
    own = "memory" if is_torn or (there is not None and there <= begun) else "file %s" % of
    decided = mine.announcements.first(own)
    if decided not in (own, "memory"):
        raise CheckpointError("%s has changed while the ranks were loading it; start the load again" % mine.path)
    if decided != "memory":
        reason = (
            "was written by another program"
            if there is None
            else "is newer than the newest copy that all members have in memory"
        )
        mine.report(LOADED, "%s is loaded from storage: it %s" % (mine.path, reason), there is None)
        return None
    if is_torn:
        mine.warn("%s is truncated, not by Outrider: save %d is loaded from memory" % (mine.path, begun[1]))
    return _whole(mine, begun, there)


def _whole(mine, begun, there):
    """The copy of that version, or None if storage has exactly that version."""
    for copy in mine.copies():
        if (copy.head.generation, copy.head.step) == begun:
            if copy.is_sound():
                return copy
            mine.warn("save %d in memory is damaged: its checksum is wrong" % begun[1])
            copy.discard()
    if there == begun:
        return None
    raise CheckpointError(
        "save %d of %s, from which all ranks resume, is not complete in this member's memory" % (begun[1], mine.path)
    )
