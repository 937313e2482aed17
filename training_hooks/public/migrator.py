"""Planned moves: the registered state of a script is saved before its pods have to go.

    from training_hooks import migrator

    migrator.register("model", model)
    migrator.register("optimizer", optimizer)
    migrator.register("progress", progress)      # a dict or a list; it is filled in place
    migrator.listening()
    if migrator.resume:                          # before the script looks for its own checkpoint
        migrator.load_ckpt()                     # on every rank

`migrator.resume` is True if a saved state exists and is complete. The file is looked for once in a process.

The job names the directory (`OUTRIDER_MIGRATION_DIR`), which is on a volume that outlives the pods. Rank 0 saves, so
the registered objects must be equal on all ranks, except what each rank creates again. Every rank loads that one file,
so all ranks continue at the same step.

Without a job no save is ever requested, and `resume` is False:

    >>> from training_hooks import migrator
    >>> progress = {"step": 0}
    >>> migrator.register("progress", progress)
    >>> migrator.listening()
    >>> migrator.resume
    False
"""

import os
import time

from ..checkpoints import planned_save, planned_save_file
from ..checkpoints.atomic_write import Beside
from ..checkpoints.state_codec import SHARDED
from ..rank import worker
from ..telemetry import flight_recorder

NO_DIRECTORY = (
    "migrationDir: Required value: planned moves need a directory that outlives the pods; name one on a persistent "
    "volume (migrationDir of the ElasticJob, the annotation outrider.dev/migration-dir, or --migration-dir)"
)


class MigrationError(RuntimeError):
    """An object cannot be registered, or the state cannot be saved or loaded; the message has the reason and the fix.

    >>> from training_hooks import migrator
    >>> issubclass(migrator.MigrationError, RuntimeError)
    True
    """


_registered = {}
_state = {"listening": False, "path": None, "looked": False}


def register(name, value):
    """Adds one object to the state that is saved before a planned move.

    The object itself is registered, not a copy: a save takes its content at that moment, and load_ckpt() fills it.
    Registering the same object again under its name has no effect.

    Arguments:
        name: the key in the saved state, a str that is not empty.
        value: a dict or a list that torch.save can write, or an object with state_dict() and load_state_dict()
            (a module, an optimizer, a scheduler). Tensors may have any shape, dtype and device.

    Returns None.

    Raises:
        MigrationError: the name is empty or belongs to another object; the value has none of these types, or it is
            sharded over the ranks (FSDP, DTensor, ShardedTensor).

    >>> from training_hooks import migrator
    >>> migrator.register("epochs", [])
    >>> migrator.register("rate", 0.1)
    Traceback (most recent call last):
    training_hooks.public.migrator.MigrationError: register('rate'): Invalid value: float: must be a dict, a list, \
or have state_dict and load_state_dict
    """
    if not isinstance(name, str) or not name:
        raise MigrationError("name: Invalid value: %r: must be a str that is not empty" % (name,))
    if name in _registered and _registered[name] is not value:
        raise MigrationError("register(%r): Duplicate value: the name is registered for another object" % name)
    has_state = callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
    if not has_state and not isinstance(value, (dict, list)):
        raise MigrationError(
            "register(%r): Invalid value: %s: must be a dict, a list, or have state_dict and load_state_dict"
            % (name, type(value).__name__)
        )
    _refuse_shards(name, value)
    _registered[name] = value


def _refuse_shards(name, value):
    parts = list(value.modules()) if callable(getattr(value, "modules", None)) else [value]
    for part in parts:
        for kind in type(part).__mro__:
            if kind.__name__ in SHARDED:
                raise MigrationError(
                    "register(%r): Forbidden: %s is sharded over the ranks; planned moves save whole states only"
                    % (name, kind.__name__)
                )


def listening():
    """Starts to serve save requests for the registered objects.

    Call it on every rank after the last register(). The save happens between two optimizer steps, on rank 0. A second
    call has no effect, and neither has a call outside of a job.

    Returns None.

    Raises:
        MigrationError: no object is registered; the job names no directory; rank 0 cannot write to it.

    >>> from training_hooks import migrator
    >>> migrator.register("scheduler", {"last_epoch": 0})
    >>> migrator.listening()
    """
    if _state["listening"]:
        return
    if not _registered:
        raise MigrationError("register: Required value: call register(name, value) before listening()")
    here = worker.current() or worker.observed()
    if here is None:
        return
    folder = planned_save_file.folder_of(os.environ)
    if not folder:
        raise MigrationError(NO_DIRECTORY)
    _state["listening"] = True
    if os.environ.get("RANK", "0") == "0":
        _offer(here, folder)


def _offer(here, folder):
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    try:
        planned_save_file.note(folder, "start", generation=here.generation, world=_world())
    except OSError as error:
        raise MigrationError("%s cannot be written: %s" % (folder, error))
    mover = planned_save.Mover(here, lambda step, until: _write(here, folder, step, until))
    register_optimizer_step_pre_hook(mover.before_step)
    register_optimizer_step_post_hook(mover.after_step)
    here.mover = mover
    flight_recorder.listen(here)
    here.channel.send(
        "up", {"offers": sorted(_registered), "generation": here.generation, "local_rank": here.local_rank}
    )


def _world():
    return int(os.environ.get("WORLD_SIZE", "1"))


# -- saving ------------------------------------------------------------------------------------------------------------
def _write(here, folder, step, until):
    """Saves the state and returns its path. A state that is complete only after `until` is dropped: the move then
    continues without it."""
    import torch

    began = time.monotonic()
    state = {name: value.state_dict() if hasattr(value, "state_dict") else value for name, value in _registered.items()}
    for name, value in state.items():
        for part in value.values() if isinstance(value, dict) else ():
            _refuse_shards(name, part)
    path = planned_save_file.next_path(folder, step)
    here.begin_save()
    finished = False
    try:
        beside = Beside(path, here.page)
        try:
            with open(beside.path, "wb") as file:
                torch.save(
                    {"outrider": planned_save_file.VERSION, "step": step, "world": _world(), "state": state}, file
                )
            if time.monotonic() > until:
                raise MigrationError("the state was written too late, after %.1f s" % (time.monotonic() - began))
            beside.finish()
        finally:
            beside.leave()
        took = round(time.monotonic() - began, 3)
        planned_save_file.commit(
            folder, path, {"step": step, "world": _world(), "names": sorted(state), "seconds": took}
        )
        finished = True
    finally:
        here.end_save(finished)
    here.saved(path, step)
    return path


# -- loading -----------------------------------------------------------------------------------------------------------
def _look():
    """The path of the saved state, or None if no complete one exists; the result of the first call is cached."""
    if _state["looked"]:
        return _state["path"]
    _state["looked"] = True
    folder = planned_save_file.folder_of(os.environ)
    if not folder:
        return None
    try:
        record = planned_save_file.read(folder)
        _state["path"] = planned_save_file.checked(folder, record) if record else None
        if _state["path"]:
            _state["record"] = record
    except planned_save_file.Unusable as error:
        here = worker.current() or worker.observed()
        if here is not None and os.environ.get("RANK", "0") == "0":
            here.report_data("unusable", "%s; the script starts without it" % error, True, {})
    return _state["path"]


def load_ckpt():
    """Fills every registered object with the saved state, on this rank.

    A dict or a list is filled in place, any other object by its load_state_dict(). Tensors are loaded to the CPU;
    load_state_dict() moves them to the object's device. Every rank calls it, if `migrator.resume` is True.

    Returns None.

    Raises:
        MigrationError: there is no saved state, or it contains a name that is not registered.
        Exception: from load_state_dict() of a registered object, or from torch.load.

    >>> from training_hooks import migrator
    >>> if migrator.resume:
    ...     migrator.load_ckpt()
    >>> migrator.load_ckpt()
    Traceback (most recent call last):
    training_hooks.public.migrator.MigrationError: there is no saved state to load; check migrator.resume first
    """
    import torch

    path = _look()
    if path is None:
        raise MigrationError("there is no saved state to load; check migrator.resume first")
    missing = sorted(set(_state["record"].get("names") or ()) - set(_registered))
    if missing:
        raise MigrationError(
            "register: Required value: the saved state also has %s; register these before load_ckpt()"
            % ", ".join(map(repr, missing))
        )
    here = worker.current() or worker.observed()
    if here is not None:
        here.known.saved(path, int(_state["record"].get("step") or 0))
    saved = torch.load(path, map_location="cpu", weights_only=False)["state"]
    for name, value in saved.items():
        _fill(_registered[name], value)


def _fill(target, value):
    if callable(getattr(target, "load_state_dict", None)):
        target.load_state_dict(value)
    elif isinstance(target, dict):
        target.clear()
        target.update(value)
    else:
        target[:] = value


def __getattr__(name):
    if name == "resume":
        return _look() is not None
    raise AttributeError("module 'migrator' has no attribute %r" % name)
