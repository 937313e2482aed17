"""Checkpoints on storage: torch files that are complete or absent, and that record step and generation.

Each rank writes its own file of a sharded state, in one folder per version; a version counts once all its files are
there. `torch.load(path)["state"]` returns the state without Outrider.
"""

import os
import re
import shutil

from . import disk_room, overtaken

MARK = "outrider_checkpoint"
VERSION = 1
NAMES = ("step", "generation", "counted", "positions", "state")
"""Keys that each file has; the first three are numbers."""
FOLDER = re.compile(r"(\d+)-(\d+)")


class Unusable(Exception):
    """A file cannot be used; the message has its path and the reason."""


class _GivenUp(Exception):
    pass


class _NoPage:
    """Stands in for the progress page in processes without a job."""

    def set_leftover(self, path):
        pass


def envelope(state, step, generation, counted, positions):
    """`counted`: the number of steps made; `positions`: the data positions to resume from."""
    about = {MARK: VERSION, "step": step, "generation": generation, "counted": counted, "positions": positions}
    return dict(about, state=state)


def write(path, enclosed, page=None, still=None, report=lambda lack: None):
    """Writes a checkpoint; returns True if it is at its place now, and False if `still()` was false at the end. Raises
    what torch and the disk raise, and Overtaken if a newer generation has saved there meanwhile. A save with `still` is
    in memory already, so it never overwrites a file in place."""
    import torch

    mine = overtaken.Save(path, enclosed["generation"])

    def put(file):
        torch.save(enclosed, file)

    def fill(to):
        with open(to, "wb") as file:
            put(file)
        if still is not None and not still():
            raise _GivenUp
        mine.mark(to)

    def size():
        return disk_room.measured(put, path)

    try:
        disk_room.put(path, page or _NoPage(), fill, size, report, may_go_in_place=still is None, check=mine.check)
    except _GivenUp:
        return False
    return True


def read(path, map_location="cpu", mapped=False):
    """Reads a checkpoint. With `mapped`, tensors are read when they are used, if this torch can. Raises Unusable."""
    import torch

    load = getattr(torch.load, "__wrapped__", torch.load)
    found = _mapped(load, path) if mapped else None
    try:
        if found is None:
            found = load(path, map_location=map_location, weights_only=False)
    except Exception as error:  # damaged bytes can raise any exception
        raise Unusable("%s cannot be read: %s: %s" % (path, type(error).__name__, str(error).partition("\n")[0]))
    if not isinstance(found, dict) or MARK not in found:
        raise Unusable("%s was not written by checkpoint.save()" % path)
    if found[MARK] != VERSION:
        raise Unusable("%s has version %r; this release reads version %d" % (path, found[MARK], VERSION))
    missing = [name for name in NAMES if name not in found]
    if missing or not all(isinstance(found[name], int) for name in NAMES[:3]):
        raise Unusable("%s is not a complete checkpoint: it lacks %s" % (path, ", ".join(missing) or "its numbers"))
    return found


def _mapped(load, path):
    """The file, mapped; None if this torch or this file does not support it."""
    try:
        return load(path, map_location="cpu", weights_only=False, mmap=True)
    except Exception:
        return None


def version(path):
    """(step, generation) of the file, or None if there is none. Raises Unusable."""
    if not os.path.exists(path):
        return None
    found = read(path, mapped=True)
    return int(found["step"]), int(found["generation"])


# -- sharded -----------------------------------------------------------------------------------------------------------
def _folder(path):
    return path + ".shards"


def shard(path, of, rank, world):
    """The path of one rank's file of a version."""
    return os.path.join(_folder(path), "%d-%d" % of, "%d-of-%d" % (rank, world))


def versions(path, world):
    """The versions of this world size whose files are all there, the newest first."""
    found = [match for match in map(FOLDER.fullmatch, _names(_folder(path))) if match]
    known = [(int(match.group(1)), int(match.group(2))) for match in found]
    whole = [of for of in known if all(os.path.exists(shard(path, of, rank, world)) for rank in range(world))]
    return sorted(whole, reverse=True)


def clean(path, world):
    """Removes all versions that are older than the two newest complete ones."""
    whole = versions(path, world)[:2]
    for name in _names(_folder(path)) if len(whole) == 2 else ():
        match = FOLDER.fullmatch(name)
        if match and (int(match.group(1)), int(match.group(2))) < whole[1]:
            shutil.rmtree(os.path.join(_folder(path), name), ignore_errors=True)


def _names(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []
