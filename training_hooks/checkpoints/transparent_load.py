"""torch.load of the marked path. It is done by torch itself, from a file in memory that it cannot tell from the one on
storage.

Before the generation's first save every rank gets the version that the world begins from. The master says which one all
members have in memory; a file on storage that is newer, or somebody else's, goes before it. The first rank that looks
decides that for all. Behind a save every rank gets that one or a newer one: from memory, or from storage once it is
there. Nothing here waits for a rank, but for the save that it has been told of.

Where no version is in the memory of all, torch.load reads the file as ever.
"""

import os
import sys
import time

from . import announcements, torch_buffer, version_file
from .memory_load import LOADED
from .memory_save import CheckpointError

PATIENCE, AFTER_FAILURE = 300.0, 10.0
"""Seconds for a save that was made, to come to storage or to this member; where it could not be written to storage."""
PAUSE = 0.02
TRIES = 8


def load(mine, plain, f, args, kwargs):
    """`plain` is torch's own; `mine` the process's Marked; `f` names its path."""
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
    fd = os.memfd_create("checkpoint")  # torch maps files that have a name
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
    said = "rank %d loads save %d (step %d) of %s from this member's memory in %.2f s"
    sentence = said % (mine.rank, about["number"], about["counted"], mine.path, seconds)
    mine.tell(LOADED, sentence, step=about["counted"])


# -- which version -----------------------------------------------------------------------------------------------------
def _chosen(mine):
    """A copy in memory; None: what is on storage."""
    if mine.memory is None:
        return None
    if mine.last is not None:  # what this rank has saved
        if mine.last.is_there() and version_file.stamp(mine.path) == mine.stamp:
            return mine.last
        mine.settle()
    if mine.number is not None:
        return None
    number = _saved_meanwhile(mine)
    return _begun_from(mine) if number is None else _of_this_generation(mine, number)


def _saved_meanwhile(mine):
    """The number of this generation's newest save, None where there was none yet."""
    number = mine.word.heard(announcements.SAVED)
    if number is not None:
        return number
    return max((each.head.step for each in _made_now(mine)), default=None)


def _made_now(mine):
    return [each for each in mine.copies() if each.head.generation == mine.generation]


def _of_this_generation(mine, number):
    """It, or a newer one. Where nobody can be asked any more rank 0 has ended, and storage has what it saved."""
    began = time.monotonic()
    while True:
        if _is_foreign(mine):
            return None
        for copy in _made_now(mine):
            if copy.head.step >= number and copy.is_sound():
                return copy
        written, failed = mine.word.heard(announcements.WRITTEN), mine.word.heard(announcements.FAILED)
        if (written or 0) >= number or mine.word.heard(announcements.SAVED) is None:
            return None
        if time.monotonic() - began > (AFTER_FAILURE if (failed or 0) >= number else PATIENCE):
            mine.warn("save %d has not come to rank %d: it reads %s as it is" % (number, mine.rank, mine.path))
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
    except OSError:  # there is no file: torch says so
        return None
    is_torn = there is None and torch_buffer.is_torn(mine.path)
    own = "memory" if is_torn or (there is not None and there <= begun) else "file %s" % of
    decided = mine.word.first(own)
    if decided not in (own, "memory"):
        raise CheckpointError("%s has changed while the ranks were loading it" % mine.path)
    if decided != "memory":
        whose = "is somebody else's" if there is None else "is newer than what all members have in memory"
        mine.tell(LOADED, "%s %s, and is loaded" % (mine.path, whose), there is None)
        return None
    if is_torn:
        mine.warn("%s is cut short, and was not by us: save %d, which is in memory, is loaded" % (mine.path, begun[1]))
    return _whole(mine, begun, there)


def _whole(mine, begun, there):
    """The copy of that version; None where storage has just that one."""
    for copy in mine.copies():
        if (copy.head.generation, copy.head.step) == begun:
            if copy.is_sound():
                return copy
            mine.warn("save %d in memory is damaged: its checksum is wrong" % begun[1])
            copy.discard()
    if there == begun:
        return None
    raise CheckpointError(
        "save %d of %s, from which all ranks begin, is not whole in this member's memory" % (begun[1], mine.path)
    )
