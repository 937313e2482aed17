"""Checkpoints in memory: a state is copied into the member's memory, and training goes on.

    from training_hooks import checkpoint

    found = checkpoint.load(path="ckpt/last.pt")               # (state, step), or None; on all ranks
    checkpoint.save({"model": model.state_dict()}, step=n)     # returns when the copy in memory is made
    checkpoint.save(state, step=n, path="ckpt/last.pt")        # and is written there in the background

The job declares the memory, which outlives the worker processes. The state is the same on all ranks, or with
`sharded=True` each rank's own, which is good only for the same rank in a world of the same size.

What is misused, or cannot be saved at all, raises CheckpointError. What goes wrong behind the training's back is told,
and training goes on.
"""

import operator
import os

from ..abi import arena
from ..checkpoints import memory_load, memory_save, transparent_save
from ..checkpoints.memory_save import CheckpointError

__all__ = ["CheckpointError", "load", "save", "wait"]
MOST_STEPS = 1 << 62
_rank = None


def _here():
    global _rank
    if os.environ.get(transparent_save.VARIABLE):
        raise CheckpointError(
            "the memory for checkpoints has what torch.save writes to %s, the path that this job has marked "
            "(--checkpoint-path, checkpointPath): use either that or training_hooks.checkpoint"
            % os.environ[transparent_save.VARIABLE]
        )
    if _rank is None or _rank.pid != os.getpid():
        _rank = memory_save.Rank()
    return _rank


def save(state, step, path=None, sharded=False):
    """Every rank calls it, with the same arguments. `state`: whatever can be pickled; `path`: a file on storage."""
    try:
        step = operator.index(step)
    except TypeError:
        raise CheckpointError("step is a whole number, not %r" % (step,))
    if not 0 <= step < MOST_STEPS:
        raise CheckpointError("step is %d, and may be from 0 up to %d" % (step, MOST_STEPS - 1))
    _here().save(state, step, _path(path), _kind(sharded))


def load(path=None, map_location="cpu", sharded=False):
    """(state, step) of the newest version that every rank can have, None where there is none. On all ranks, after
    init_process_group. `map_location` as torch.load has it."""
    return memory_load.Loading(_here(), _path(path), map_location, _kind(sharded)).run()


def wait():
    """Until what this rank has saved counts, and is on storage where that was asked for. A process that ends without
    an error waits by itself."""
    _here().sealing.wait()
    _here().storing.wait()


def _path(path):
    if path is None:
        return None
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise CheckpointError("path is the name of a file, not %r" % (path,))
    if not os.path.basename(os.fspath(path)):
        raise CheckpointError("path is %r, and that names no file" % os.fspath(path))
    return os.path.abspath(os.fspath(path))


def _kind(sharded):
    return arena.SHARDED if sharded else arena.REPLICATED
