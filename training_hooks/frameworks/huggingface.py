"""Reports the checkpoints of transformers, accelerate and Lightning, which write folders, to the worker.

A folder that one call fills with several files is one save: a stop waits for all of it, and it is reported once it is
complete. No framework needs this module; a version with other names is left unchanged.
"""

import functools
import os
import sys

from ..checkpoints import disk_room, save_hooks

FOLDERS = (
    ("transformers.trainer", "Trainer", "_save_checkpoint"),
    ("accelerate.accelerator", "Accelerator", "save_state"),
)
"""Methods that fill a folder, by class."""
STATE = "trainer_state.json"
"""The file that transformers' Trainer writes last, and without which it cannot resume from a folder."""


CLOUD = ("lightning.fabric.utilities.cloud_io", "lightning_fabric.utilities.cloud_io")


def prepare(current, when_imported):
    for module, owner, name in FOLDERS:
        when_imported(module, functools.partial(wrap_folder, current, owner=owner, name=name))
    when_imported("transformers.trainer_utils", functools.partial(wrap_last_checkpoint, current))
    for module in CLOUD:
        when_imported(module, functools.partial(wrap_lightning, current))


def wrap_lightning(current, module):
    """`module` is Lightning's cloud_io. It saves from memory through fsspec into a temporary file, which is then moved,
    or copied to another disk; and it loads from an open file."""
    torch = sys.modules["torch"]
    save, module._load = module._atomic_save, save_hooks.noticed_load(current, module._load)

    @functools.wraps(save)
    def whole_save(checkpoint, filepath):
        worker, path = current(), save_hooks.as_path(filepath)
        if worker is None or path is None or "://" in path:
            return save(checkpoint, filepath)

        def size():
            return disk_room.measured(lambda file: torch.save(checkpoint, file), path)

        return save_hooks.whole(worker, "torch.save", path, lambda target: save(checkpoint, target), size)

    module._atomic_save = whole_save


def wrap_folder(current, module, owner, name):
    kind = getattr(module, owner)
    fill = getattr(kind, name)

    @functools.wraps(fill)
    def whole(self, *args, **kwargs):
        worker = current()
        if worker is None:
            return fill(self, *args, **kwargs)
        already, done = len(worker.together.held), False
        worker.begin_save()
        try:
            result = fill(self, *args, **kwargs)
            done = True
        finally:
            worker.together.as_one(already, done)
            worker.end_save(done, alone=False)
        return result

    setattr(kind, name, whole)


def wrap_last_checkpoint(current, module):
    """`module` is transformers.trainer_utils. The newest folder may be incomplete after a kill during its save, and the
    Trainer would fail on it at each start. It is skipped if an older folder is complete."""
    newest = module.get_last_checkpoint

    @functools.wraps(newest)
    def get_last_checkpoint(folder):
        found = newest(folder)
        if current() is None or found is None or os.path.exists(os.path.join(found, STATE)):
            return found
        return _newest_whole(module, folder) or found

    module.get_last_checkpoint = get_last_checkpoint


def _newest_whole(module, folder):
    numbers = {}
    for name in os.listdir(folder):
        match = module._re_checkpoint.search(name)
        if match is not None and os.path.exists(os.path.join(folder, name, STATE)):
            numbers[int(match.groups()[0])] = os.path.join(folder, name)
    return numbers[max(numbers)] if numbers else None
