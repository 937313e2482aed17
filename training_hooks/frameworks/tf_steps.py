"""Reports TensorFlow's steps and checkpoints on the progress page, without a change to the script.

Four sources count: the global step of monitored sessions (`tf.compat.v1.train.MonitoredTrainingSession`, and
estimators, which use them); the closures that a `ClusterCoordinator` has completed; the batches of a Keras `fit`; and
saves by `Saver` and `Checkpoint`. A session that saves can be asked to save (`frameworks.tf_session_save`), and one
that has lost a parameter server recovers sooner (`frameworks.tf_session_recovery`).

The global step is shared and lives on a parameter server, so it is fetched with a run of the script's own, at most ten
times a second. It may decrease: a recovered session continues at the last checkpoint. Code that differs from TensorFlow
2.21 is left unchanged.
"""

import functools
import time

from ..abi import progress_page as pages
from ..process import import_hooks
from . import tf_session_recovery, tf_session_save

FETCH_EVERY = 0.1
SOURCE = 4


def prepare(current):
    """`current()` returns this process's worker, or None. Nothing is imported for it."""
    watch = import_hooks.when_imported
    watch("tensorflow.python.training.monitored_session", lambda module: wrap_sessions(current, module))
    watch("tensorflow.python.training.monitored_session", lambda module: tf_session_recovery.let_go(current, module))
    watch("tensorflow.python.training.session_manager", lambda module: tf_session_recovery.look_sooner(current, module))
    watch("tensorflow.python.training.saver", lambda module: wrap_saver(current, module))
    watch("tensorflow.python.checkpoint.checkpoint", lambda module: wrap_checkpoint(current, module))
    watch("tensorflow.python.distribute.coordinator.cluster_coordinator", lambda module: wrap_queue(current, module))
    for name in ("keras.src.callbacks.callback_list", "tf_keras.src.callbacks"):
        watch(name, lambda module: wrap_batches(current, module))


# -- writing ----------------------------------------------------------------------------------------------------------
def note(worker, step):
    """Records the newest step, and the time per step since the last recorded one."""
    words, now = worker.page.words, time.monotonic_ns()
    known, last = words[pages.STEPS], words[pages.LAST]
    if step < known:
        worker.page.set((pages.STEPS, step))
    if step <= known:
        return
    each = (now - last) // (step - known) if last else 0
    worker.page.source = SOURCE
    worker.page.set((pages.STEPS, step), (pages.BEFORE, now - each if each else 0), (pages.LAST, now))
    worker.stepped(step)


def one_more(worker, count=1):
    note(worker, worker.page.words[pages.STEPS] + count)


# -- the global step of a session -------------------------------------------------------------------------------------
def wrap_sessions(current, module):
    """Adds one hook to every monitored session."""
    hooks, util = module.session_run_hook, module.basic_session_run_hooks.training_util

    class GlobalStep(hooks.SessionRunHook):
        def __init__(self, saver):
            self.step, self.asked_at = None, 0.0
            self.saver = saver

        def begin(self):
            self.step = util.get_global_step()
            worker = current()
            if worker is not None and self.saver is not None and worker.mover is None:
                worker.mover = self.saver = tf_session_save.SessionSaver(worker, self.saver)
                _quietly(self.saver.offer)

        def before_run(self, run_context):
            now = time.monotonic()
            if self.step is None or now - self.asked_at < FETCH_EVERY:
                return None
            self.asked_at = now
            return hooks.SessionRunArgs(self.step)

        def after_run(self, run_context, run_values):
            worker = current()
            if worker is not None and run_values.results is not None:
                _quietly(note, worker, int(run_values.results))
            if worker is not None and worker.mover is self.saver is not None:
                self.saver.look(run_context.session, self.step)

    make, savers = module._MonitoredSession.__init__, module.basic_session_run_hooks.CheckpointSaverHook

    @functools.wraps(make)
    def __init__(self, session_creator, hooks, *args, **kwargs):
        if current() is not None:
            saver = next((each for each in hooks or () if isinstance(each, savers)), None)
            hooks = [*(hooks or ()), GlobalStep(saver)]
        make(self, session_creator, hooks, *args, **kwargs)

    module._MonitoredSession.__init__ = __init__


# -- a coordinator's closures, and Keras ------------------------------------------------------------------------------
def wrap_queue(current, module):
    """Counts each completed closure as a step; one whose worker was lost is completed elsewhere, and counts once."""
    queue = module._CoordinatedClosureQueue
    finish = queue.mark_finished

    @functools.wraps(finish)
    def mark_finished(self):
        finish(self)
        worker = current()
        if worker is not None:
            with self._queue_lock:  # threads of several workers arrive at the same time
                _quietly(one_more, worker)

    queue.mark_finished = mark_finished


def wrap_batches(current, module):
    """Counts batches if nothing else counts steps."""
    ended = module.CallbackList.on_train_batch_end

    @functools.wraps(ended)
    def on_train_batch_end(self, *args, **kwargs):
        worker = current()
        if worker is not None and worker.page.source in (0, SOURCE):
            _quietly(one_more, worker)
        return ended(self, *args, **kwargs)

    module.CallbackList.on_train_batch_end = on_train_batch_end


# -- checkpoints ------------------------------------------------------------------------------------------------------
def wrap_saver(current, module):
    save = module.Saver.save

    @functools.wraps(save)
    def saved(self, sess, save_path, global_step=None, *args, **kwargs):
        step = global_step if isinstance(global_step, int) else None
        return _saving(current(), lambda: save(self, sess, save_path, global_step, *args, **kwargs), step)

    module.Saver.save = saved


def wrap_checkpoint(current, module):
    write, read = module.Checkpoint._write, module.Checkpoint.read

    @functools.wraps(write)
    def _write(self, *args, **kwargs):
        return _saving(current(), lambda: write(self, *args, **kwargs), None)

    @functools.wraps(read)
    def read_(self, save_path, *args, **kwargs):
        worker = current()
        if worker is not None:
            _quietly(worker.loaded, str(save_path))
        return read(self, save_path, *args, **kwargs)

    module.Checkpoint._write, module.Checkpoint.read = _write, read_


def _saving(worker, save, step):
    """Saves with the page in its phase `checkpoint`, and reports the path."""
    if worker is None:
        return save()
    began, path = time.monotonic(), None
    _quietly(worker.begin_save)
    try:
        path = save()
        return path
    finally:
        _quietly(worker.end_save, path is not None)
        if path is not None:
            text = path.decode() if isinstance(path, bytes) else str(path)
            _quietly(worker.saved, text, step, began)


def _quietly(do, *args):
    try:
        do(*args)
    except Exception:  # the page or the channel is gone: training continues without being counted
        pass
