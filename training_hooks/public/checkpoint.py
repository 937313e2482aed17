"""Checkpoints in the member's memory: save() copies a state there, and training continues.

    from training_hooks import checkpoint

    found = checkpoint.load(path="ckpt/last.pt")               # (state, step) or None; on all ranks
    checkpoint.save({"model": model.state_dict()}, step=n)     # returns when the copy in memory is complete
    checkpoint.save(state, step=n, path="ckpt/last.pt")        # the same; a thread then writes the file

The job declares the memory (`--checkpoint-memory`, `checkpointMemory`); it outlives the worker processes. The state is
either the same on all ranks, or with `sharded=True` each rank's own. A sharded state can be loaded only by the same
rank in a generation of the same world size.

Misuse, and a state that cannot be saved at all, raise CheckpointError. A failure in the background is reported as an
Event of the job, and training continues.

Without a job nothing is kept in memory: save() writes `path` before it returns, and load() reads it.

    >>> import os, tempfile, torch
    >>> from training_hooks import checkpoint
    >>> path = os.path.join(tempfile.mkdtemp(), "last.pt")
    >>> checkpoint.load(path=path) is None
    True
    >>> checkpoint.save({"weight": torch.ones(2)}, step=10, path=path)
    >>> state, step = checkpoint.load(path=path)
    >>> state["weight"].tolist(), step
    ([1.0, 1.0], 10)
"""

import operator
import os

from ..abi import arena
from ..checkpoints import memory_load, memory_save, transparent_save
from ..checkpoints.memory_save import CheckpointError

__all__ = ["CheckpointError", "load", "save", "wait"]
MOST_STEPS = 1 << 62
"""The first step number that is too large to be saved."""
_rank = None


def _here():
    global _rank
    if os.environ.get(transparent_save.VARIABLE):
        raise CheckpointError(
            "training_hooks.checkpoint: Forbidden: the checkpoint memory is used for %s, the checkpoint path of this "
            "job (--checkpoint-path, checkpointPath); use either that path or training_hooks.checkpoint"
            % os.environ[transparent_save.VARIABLE]
        )
    if _rank is None or _rank.pid != os.getpid():
        _rank = memory_save.Rank()
    return _rank


def save(state, step, path=None, sharded=False):
    """Saves a state in the member's memory, and to a file if `path` is given.

    Every rank calls it with the same `step`, `path` and `sharded`. With memory it returns when the copy is complete,
    and a thread computes its checksums and writes the file; a newer save may take the place of one that is not written
    yet. Without memory it writes the file before it returns, completely or not at all.

    Arguments:
        state: any object that pickle can save. Tensors may have any shape, dtype and device; they are copied to the
            CPU. Unless `sharded`, it must be the same on all ranks and have no sharded tensors (FSDP, DTensor).
        step: the script's step number, an int from 0 to 2**62 - 1. Each save to memory needs a greater step than the
            one before; one with a smaller step is skipped and reported. With the step of the last save only a missing
            file is written.
        path: the name of a file (str or os.PathLike) on storage that all ranks share, or None for memory alone. Rank 0
            writes it; `torch.load(path)["state"]` reads it without Outrider. With `sharded` every rank writes its own
            file in the folder `<path>.shards`.
        sharded: False if the state is the same on all ranks, True if each rank has its own part. A script uses one of
            the two.

    Returns None.

    Raises:
        CheckpointError: an argument is invalid; there is neither memory nor a path; the state cannot be pickled, is
            sharded without `sharded=True`, or is larger than the memory; the job has a checkpoint path.
        OSError, RuntimeError: from the write of the file, if there is no memory.

    >>> import os, tempfile, torch
    >>> from training_hooks import checkpoint
    >>> path = os.path.join(tempfile.mkdtemp(), "last.pt")
    >>> checkpoint.save({"weight": torch.zeros(2, 3)}, step=1, path=path)
    >>> torch.load(path, weights_only=False)["state"]["weight"].shape
    torch.Size([2, 3])
    >>> checkpoint.save({}, step=1.5, path=path)
    Traceback (most recent call last):
    training_hooks.checkpoints.memory_save.CheckpointError: step: Invalid value: 1.5: must be an integer
    """
    try:
        step = operator.index(step)
    except TypeError:
        raise CheckpointError("step: Invalid value: %r: must be an integer" % (step,))
    if not 0 <= step < MOST_STEPS:
        raise CheckpointError("step: Invalid value: %d: must be from 0 to %d" % (step, MOST_STEPS - 1))
    _here().save(state, step, _path(path), _kind(sharded))


def load(path=None, map_location="cpu", sharded=False):
    """Loads the newest version that every rank can read, from memory or from `path`.

    Every rank calls it with the same `path` and `sharded`, after init_process_group. A copy in memory with a wrong
    checksum, or a file that cannot be read, is reported and skipped; the ranks then agree on another version. Copies in
    memory that are newer than the loaded version are discarded.

    Arguments:
        path: the file that save() was given (str or os.PathLike), or None for memory alone.
        map_location: the device of the loaded tensors, as in torch.load; "cpu" by default.
        sharded: as in save().

    Returns (state, step), as they were saved: the same on all ranks, or this rank's own state with `sharded`. Returns
    None if no version exists that all ranks have.

    Raises:
        CheckpointError: the ranks' arguments differ; a rank did not call load() within 300 s; there is no process
            group of all ranks; a version exists, but none that all ranks can read; the memory has a state that was
            saved with the other value of `sharded`; the job has a checkpoint path.

    >>> import os, tempfile
    >>> from training_hooks import checkpoint
    >>> path = os.path.join(tempfile.mkdtemp(), "last.pt")
    >>> checkpoint.load(path=path)
    >>> checkpoint.save({"epoch": 3}, step=42, path=path)
    >>> checkpoint.load(path=path)
    ({'epoch': 3}, 42)
    """
    return memory_load.Loading(_here(), _path(path), map_location, _kind(sharded)).run()


def wait():
    """Waits until all saves of this rank are complete: checksums in memory, and files on storage.

    Only a script that needs the file itself calls it: a process that ends without an error waits by itself. It raises
    nothing if a write failed (that is reported as an Event), and CheckpointError if the job has a checkpoint path.

    Returns None.

    >>> import os, tempfile
    >>> from training_hooks import checkpoint
    >>> path = os.path.join(tempfile.mkdtemp(), "last.pt")
    >>> checkpoint.save({"epoch": 4}, step=50, path=path)
    >>> checkpoint.wait()
    >>> os.path.exists(path)
    True
    """
    _here().sealing.wait()
    _here().storing.wait()


def _path(path):
    if path is None:
        return None
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise CheckpointError("path: Invalid value: %r: must be a file name (str or os.PathLike)" % (path,))
    if not os.path.basename(os.fspath(path)):
        raise CheckpointError("path: Invalid value: %r: must name a file, not a folder" % os.fspath(path))
    return os.path.abspath(os.fspath(path))


def _kind(sharded):
    return arena.SHARDED if sharded else arena.REPLICATED
