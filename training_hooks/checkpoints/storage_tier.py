"""Checkpoints on storage. Each is a file of torch's that is whole or not there, and says what it is a checkpoint of.

Of a sharded state each rank writes its own file, in a folder a version; a version counts once all its files are there.
`torch.load(path)["state"]` gives the state without Outrider.
"""

import os
import re
import shutil

from . import disk_room, overtaken

MARK = "outrider_checkpoint"
VERSION = 1
NAMES = ("step", "generation", "counted", "positions", "state")
"""What each has; the first three are numbers."""
FOLDER = re.compile(r"(\d+)-(\d+)")


class Unusable(Exception):
    """A sentence: which file, and what is wrong with it."""


class _GivenUp(Exception):
    pass


class _NoPage:
    """For processes that are no rank of Outrider's."""

    def set_leftover(self, path):
        pass


def envelope(state, step, generation, counted, positions):
    """`counted`: the steps that were made; `positions`: where the data goes on."""
    about = {MARK: VERSION, "step": step, "generation": generation, "counted": counted, "positions": positions}
    return dict(about, state=state)


def write(path, enclosed, page=None, still=None, told=lambda lack: None):
    """True where it is there now; False where `still()` said no at the end. Raises what torch and the disk raise, and
    Overtaken where a newer generation has saved there meanwhile. What may be given up (`still`) is in memory, and never
    goes in place."""
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
        disk_room.put(path, page or _NoPage(), fill, size, told, may_go_in_place=still is None, check=mine.check)
    except _GivenUp:
        return False
    return True


def read(path, map_location="cpu", mapped=False):
    """What was written. `mapped` reads of the tensors only what is looked at, where this torch can. Raises Unusable."""
    import torch

    load = getattr(torch.load, "__wrapped__", torch.load)
    found = _mapped(load, path) if mapped else None
    try:
        if found is None:
            found = load(path, map_location=map_location, weights_only=False)
    except Exception as error:  # a damaged file raises whatever its bytes happen to mean
        raise Unusable("%s cannot be read: %s: %s" % (path, type(error).__name__, str(error).partition("\n")[0]))
    if not isinstance(found, dict) or MARK not in found:
        raise Unusable("%s was not written by checkpoint.save()" % path)
    if found[MARK] != VERSION:
        raise Unusable("%s has version %r, and version %d is read here" % (path, found[MARK], VERSION))
    missing = [name for name in NAMES if name not in found]
    if missing or not all(isinstance(found[name], int) for name in NAMES[:3]):
        raise Unusable("%s is no whole checkpoint: it lacks %s" % (path, ", ".join(missing) or "its numbers"))
    return found


def _mapped(load, path):
    """None where this torch, or this file, knows no mapping."""
    try:
        return load(path, map_location="cpu", weights_only=False, mmap=True)
    except Exception:
        return None


def version(path):
    """(step, generation) of the file, None where there is none. Raises Unusable."""
    if not os.path.exists(path):
        return None
    found = read(path, mapped=True)
    return int(found["step"]), int(found["generation"])


# -- sharded -----------------------------------------------------------------------------------------------------------
def _folder(path):
    return path + ".shards"


def shard(path, of, rank, world):
    """Where a rank's file of a version lies."""
    return os.path.join(_folder(path), "%d-%d" % of, "%d-of-%d" % (rank, world))


def versions(path, world):
    """Those of which all files of a world of that size are there, the newest first."""
    found = [match for match in map(FOLDER.fullmatch, _names(_folder(path))) if match]
    known = [(int(match.group(1)), int(match.group(2))) for match in found]
    whole = [of for of in known if all(os.path.exists(shard(path, of, rank, world)) for rank in range(world))]
    return sorted(whole, reverse=True)


def clean(path, world):
    """Removes what is older than the two newest whole versions."""
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
