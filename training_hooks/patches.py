"""Lists the wrapped functions of torch and of the standard library, and wraps them in time.

`prepare` is called before torch is imported, so that a function is wrapped before another module copies its name. A
wrapper passes every call through until `worker.current` returns a worker.
"""

import functools
import os

from .abi import progress_page
from .checkpoints import renames, save_hooks
from .frameworks import gloo_shutdown, huggingface, rendezvous_wait, tf_config, tf_steps
from .process import import_hooks
from .public import exports
from .rank.worker import current, look_early, observed, when_active, when_saved
from .telemetry import flight_recorder, step_counter

MARKED = "OUTRIDER_CHECKPOINT_PATH"


def prepare():
    """Wraps what must be wrapped early. The wrappers do nothing until there is a worker."""
    exports.serve()
    renames.follow(current)
    tf_steps.prepare(current)
    if MARKED in os.environ:
        from .checkpoints import transparent_save

        transparent_save.wrap_files()
        when_saved(transparent_save.saved)
    import_hooks.when_imported("torch", _wrap_torch)
    import_hooks.when_imported("torch.optim.optimizer", step_counter.notice_optimizers)
    import_hooks.when_imported("torch.distributed.distributed_c10d", _wrap_init)
    import_hooks.when_imported("safetensors.torch", lambda module: save_hooks.wrap_safetensors(current, module))
    import_hooks.when_imported(
        "torch.distributed.checkpoint.state_dict_saver",
        lambda module: save_hooks.wrap_distributed_checkpoint(current, module),
    )
    import_hooks.when_imported(
        "torch.distributed.checkpoint.state_dict_loader",
        lambda module: save_hooks.wrap_distributed_load(current, module),
    )
    import_hooks.when_imported(
        "torch.distributed.checkpoint.state_dict", lambda module: step_counter.leave_out(current, module)
    )
    when_active(_offer_tf_config)
    huggingface.prepare(current, import_hooks.when_imported)


def _offer_tf_config(worker):
    import_hooks.when_imported("tensorflow", lambda module: tf_config.offer(worker, current))


def _wrap_torch(torch):
    if MARKED in os.environ:
        from .checkpoints import transparent_save

        save_hooks.wrap_torch(current, torch, transparent_save.here)
    else:
        save_hooks.wrap_torch(current, torch)
    module_class = torch.nn.Module
    evaluate = module_class.eval
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)  # there from torch 2.1 on

    def eval(self):
        if is_compiling():  # dynamo traces this function, and may trace no code of the hooks (fullgraph=True)
            return evaluate(self)
        worker = current()
        if worker is not None:
            worker.evaluates()
        result = evaluate(self)
        if worker is not None:
            _await_train(worker, module_class, is_compiling)
        return result

    eval.__doc__, eval.__qualname__, eval.__module__ = evaluate.__doc__, evaluate.__qualname__, evaluate.__module__
    eval.__wrapped__, eval.__annotations__ = evaluate, evaluate.__annotations__
    module_class.eval = eval


def _await_train(worker, module_class, is_compiling):
    """Ends the evaluation at the next `train()`. It is wrapped only until then, because it calls itself for every part
    of a model."""
    train = module_class.train
    if getattr(train, "ends_evaluation", False):
        return

    @functools.wraps(train)
    def train_again(self, mode=True):
        if mode and not is_compiling():
            module_class.train = train
            worker.spent.evaluated()
        return train(self, mode)

    train_again.ends_evaluation = True
    module_class.train = train_again


def _wrap_init(module):
    init = module.init_process_group

    @functools.wraps(init)
    def init_process_group(*args, **kwargs):
        worker = current() or observed()
        before = None if worker is None else worker.spent.enter(progress_page.RENDEZVOUS)
        if worker is not None:
            try:
                flight_recorder.listen(worker)
            except Exception:  # without the thread the rank cannot answer questions; training continues
                pass
            try:
                rendezvous_wait.prepare(args, kwargs)
            except Exception:  # torch itself waits, only longer
                pass
        try:
            result = init(*args, **kwargs)
        finally:
            if worker is not None:
                worker.spent.leave(before)
        _tell_marked()
        return result

    module.init_process_group = init_process_group
    gloo_shutdown.wrap(current, module)


def _tell_marked():
    if MARKED not in os.environ:
        return
    from .checkpoints import transparent_save

    try:
        mine = transparent_save.here()
        if mine is not None:
            mine.announcements.joined()
    except Exception:  # saves to the checkpoint path are then ordinary ones
        pass


def count_steps(worker):
    import_hooks.when_imported("torch.optim.optimizer", lambda module: step_counter.attach(worker, module))


# -- under a launcher -------------------------------------------------------------------------------------------------
def observe():
    """Prepares a Python process of a generation that a launcher runs. It is a rank if it later makes a process group or
    a step; nothing is created until then."""
    prepare()
    import_hooks.when_imported("torch", look_early)
    import_hooks.when_imported("torch.optim.optimizer", _observe_steps)


def _observe_steps(module):
    """One hook that becomes the counting hook, since torch forbids changing its hooks while they run."""
    count = None

    def observe_step(optimizer, args, kwargs):
        nonlocal count
        if count is None:
            worker = current() or observed()
            if worker is None:
                return
            count = step_counter.hook(worker)
            worker.page.source = progress_page.FROM_OPTIMIZER
        count(optimizer, args, kwargs)

    module.register_optimizer_step_post_hook(observe_step)
