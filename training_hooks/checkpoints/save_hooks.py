"""Makes saves atomic, reports finished checkpoints, and finds the step that a load resumes.

A process that is killed inside `torch.save(path)` leaves a file that cannot be read (measured: 18 of 20). So a save to
a path is written beside it (`checkpoints.atomic_write`) and renamed; `checkpoints.disk_room` handles a full disk.

A save is a *finished checkpoint* if its path existed before, if a path that differs only in digits was saved before in
this process, or if it is a safetensors file or a DCP folder. A model that is written once at the end is not one. The
first save to a path counts if a signal has requested a save, which the sender of the signal knows.
"""

import contextlib
import functools
import os
import threading

from ..abi import progress_page
from ..rank import known_checkpoints
from . import disk_room, newer_kept, overtaken


def whole(worker, save, target, call, size, note=None):
    """Runs `call(path)` so that `target` is complete or unchanged; returns what `call` returns. `size()`: the most
    bytes that it writes, or None if unknown. `note(path)` is called when the file is complete, before it replaces the
    target. If a newer generation has saved there meanwhile, its file stays, and None is returned."""
    worker.wait_for_verdict()
    existed, mine = os.path.exists(target), overtaken.Save(target, worker.generation_number())

    def fill(path):
        result = call(path)
        if path != target:
            mine.check()  # before anything is recorded about it
        if save == "torch.save" and worker.data is not None:
            _note_position(worker, target, path)
        if note is not None:
            note(path)
        mine.mark(path)
        return result

    began = worker.begin_save()
    try:
        report = functools.partial(worker.report_room, target)
        keep = functools.partial(newer_kept.keep, worker, target)
        result = disk_room.put(target, worker.page, fill, size, report, check=mine.check, before=keep)
    except overtaken.Overtaken as error:
        worker.end_save(False)
        worker.report_overtaken(error)
        return None
    except BaseException as error:
        worker.end_save(False)
        if isinstance(error, OSError) and error.errno in disk_room.FULL:
            worker.report_full(target, error)
        raise
    worker.end_save(True, alone=False)
    is_first = save == "torch.save" and not worker.series.continues(target, existed)
    worker.saved(target, began=began, is_first=is_first)
    return result


def _note_position(worker, target, written):
    """Records the data position of a save. A background thread took its copy of the state at an unknown moment, so only
    the main thread's position is recorded."""
    known = worker.data.for_save(target)
    if known is not None or threading.current_thread() is threading.main_thread():
        worker.data.saved(target, written, known)


def as_path(target):
    """The path as str, or None if it is not a path."""
    if isinstance(target, (str, os.PathLike)):
        path = os.fspath(target)
        return path if isinstance(path, str) else None
    return None


def _opened(file):
    """The path of a file that the script has opened, or None if it is not a file."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) and hasattr(file, "fileno") and os.path.isfile(name) else None


def _note_opened(worker, file):
    """A save into an open file counts as a save, although it cannot be made atomic."""
    path = _opened(file)
    if path is None or worker.is_saving() or threading.current_thread() is not threading.main_thread():
        return
    try:
        file.flush()
    except (OSError, ValueError):  # the script gets the error when it closes the file
        return
    if worker.data is not None:
        _note_position(worker, path, path)
    worker.begin_save()
    worker.end_save(True, alone=False)
    worker.saved(path, is_first=not worker.series.continues(path, False))


@contextlib.contextmanager
def _loading(current):
    worker = current()
    before = None if worker is None else worker.spent.enter(progress_page.LOADING)
    try:
        yield
    finally:
        if worker is not None:
            worker.spent.leave(before)


def noticed_load(current, load, marked=lambda: None):
    """Wraps `load(path, …)` to report the loaded file to the worker."""

    @functools.wraps(load)
    def noticed_load(f, *args, **kwargs):
        mine = marked()
        with _loading(current):
            if mine is not None and mine.is_behind(f):
                return mine.load(load, f, args, kwargs)
            result = load(f, *args, **kwargs)
        worker, path = current(), as_path(f) or _opened(f)
        if worker is not None and path is not None:
            worker.loaded(path)
        elif path is not None:
            known_checkpoints.note_early(path)
        return result

    return noticed_load


def wrap_torch(current, torch, marked=lambda: None):
    """`current()` returns this process's worker, or None if it has none (the template, a DataLoader worker). `marked()`
    returns the handler of the checkpoint path, or None if the job has none."""
    save, load = torch.save, noticed_load(current, torch.load, marked)

    @functools.wraps(save)
    def whole_save(obj, f, *args, **kwargs):
        mine = marked()
        if mine is not None and mine.is_it(f):
            return mine.save(save, obj, f, args, kwargs)
        worker, path = current(), as_path(f)
        if worker is None or path is None:
            result = save(obj, f, *args, **kwargs)
            if worker is not None:
                _note_opened(worker, f)
            return result

        def put(target):
            return save(obj, target, *args, **kwargs)

        return whole(worker, "torch.save", path, put, lambda: disk_room.measured(put, path))

    torch.save, torch.load = whole_save, load
    serialization = getattr(torch, "serialization", None)
    if getattr(serialization, "save", None) is save:
        serialization.save, serialization.load = whole_save, load


def wrap_safetensors(current, module):
    save_file = module.save_file

    @functools.wraps(save_file)
    def whole_save_file(tensors, filename, *args, **kwargs):
        worker, path = current(), as_path(filename)
        if worker is None or path is None:
            return save_file(tensors, filename, *args, **kwargs)

        def put(target):
            return save_file(tensors, target, *args, **kwargs)

        return whole(worker, "safetensors", path, put, lambda: _size_of(tensors, args, kwargs))

    module.save_file, module.load_file = whole_save_file, noticed_load(current, module.load_file)


def _size_of(tensors, args, kwargs):
    """An upper limit: a JSON header and the tensors after it."""
    header = sum(200 + 6 * len(name) + 24 * tensor.dim() for name, tensor in tensors.items())
    metadata = args[0] if args else kwargs.get("metadata")
    texts = sum(20 + 6 * len(str(key)) + 6 * len(str(value)) for key, value in (metadata or {}).items())
    return 4096 + header + texts + sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _folder(arguments, storage):
    """The folder that a DCP call reads or writes: its `checkpoint_id`, or the path of its storage."""
    chosen = arguments.get("checkpoint_id") or getattr(arguments.get(storage), "path", None)
    return as_path(chosen)


def wrap_distributed_checkpoint(current, module):
    """`module` is torch.distributed.checkpoint.state_dict_saver; its `save` returns when the folder is complete."""
    save = module.save

    @functools.wraps(save)
    def noticed_save(*args, **kwargs):
        worker = current()
        if worker is None:
            return save(*args, **kwargs)
        began = worker.begin_save()
        done = False
        try:
            result = save(*args, **kwargs)
            done = True
        finally:
            worker.end_save(done, alone=False)
        folder = _folder(kwargs, "storage_writer")
        if folder:
            if worker.data is not None and worker.data.rank == 0:
                _note_position(worker, folder, folder)
            worker.saved(folder, began=began)
        return result

    module.save = noticed_save
    save_later = getattr(module, "async_save", None)
    if save_later is None:
        return

    @functools.wraps(save_later)
    def noticed_async_save(*args, **kwargs):
        worker, folder = current(), _folder(kwargs, "storage_writer")
        if worker is not None and worker.data is not None and folder:
            worker.data.will_be_saved(folder)
        return save_later(*args, **kwargs)

    module.async_save = noticed_async_save


def wrap_distributed_load(current, module):
    """`module` is torch.distributed.checkpoint.state_dict_loader."""
    load = module.load

    @functools.wraps(load)
    def noticed_load(*args, **kwargs):
        with _loading(current):
            result = load(*args, **kwargs)
        worker, folder = current(), _folder(kwargs, "storage_reader")
        if worker is not None and folder:
            worker.loaded(folder)
        return result

    module.load = noticed_load
