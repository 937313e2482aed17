"""Planned moves: a script names what makes up its state, and that is saved before its pods have to go.

    from training_hooks import migrator

    migrator.register("model", model)
    migrator.register("optimizer", optimizer)
    migrator.register("progress", progress)      # a dict or a list, filled in place
    migrator.listening()
    if migrator.resume:                          # goes before the script's own checkpoint
        migrator.load_ckpt()                     # on every rank

Where it is saved: `OUTRIDER_MIGRATION_DIR`, which the job names, a directory on a volume that outlives its pods. Rank 0
saves, so what is registered has to be the same on all ranks but for what each rank makes anew; every rank loads that
one file, and so all agree on its step. Outside of Outrider nothing is ever asked to be saved, and `resume` is False.
"""

import os
import time

from ..checkpoints import planned_save, planned_save_file
from ..checkpoints.atomic_write import Beside
from ..checkpoints.state_codec import SHARDED
from ..rank import worker
from ..telemetry import flight_recorder

NO_DIRECTORY = (
    "planned moves need a directory that outlives the pods: name one on a persistent volume of yours, by migrationDir "
    "of the ElasticJob, the annotation outrider.dev/migration-dir or --migration-dir"
)


class MigrationError(RuntimeError):
    """What cannot be registered, saved or loaded; the sentence says why and what may be done."""


_registered = {}
_state = {"listening": False, "path": None, "looked": False}


def register(name, value):
    """`value`: a dict, a list, or anything with state_dict and load_state_dict; kept by reference."""
    if not isinstance(name, str) or not name:
        raise MigrationError("a name to register is a text that is not empty, not %r" % (name,))
    if name in _registered and _registered[name] is not value:
        raise MigrationError("%r is registered already, for another object" % name)
    has_state = callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
    if not has_state and not isinstance(value, (dict, list)):
        raise MigrationError(
            "%r is a %s: what is registered is a dict, a list, or has state_dict and load_state_dict"
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
                    "%r is sharded over the ranks (%s): planned moves save whole states only" % (name, kind.__name__)
                )


def listening():
    """From now on the state is saved when it is asked for. Say it when everything is registered."""
    if _state["listening"]:
        return
    if not _registered:
        raise MigrationError("nothing is registered: say register(name, value) before listening()")
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
    here.channel.tell(
        "up", {"offers": sorted(_registered), "generation": here.generation, "local_rank": here.local_rank}
    )


def _world():
    return int(os.environ.get("WORLD_SIZE", "1"))


# -- saving ------------------------------------------------------------------------------------------------------------
def _write(here, folder, step, until):
    """Returns the path. What is not there in time is not kept: who waits for it goes on without."""
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
    """The path of the state that counts, None where there is none. Looked for once."""
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
            here.tell_data("unusable", "%s; the script begins as without it" % error, True, {})
    return _state["path"]


def load_ckpt():
    """Fills everything that is registered with the saved state, on this rank."""
    import torch

    path = _look()
    if path is None:
        raise MigrationError("there is no saved state to load: ask migrator.resume first")
    missing = sorted(set(_state["record"].get("names") or ()) - set(_registered))
    if missing:
        raise MigrationError(
            "load_ckpt() before everything is registered: the saved state also has %s" % ", ".join(map(repr, missing))
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
