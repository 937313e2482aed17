"""Which functions of torch and of the standard library are wrapped, and when: the one list of them.

`prepare` is called before torch is imported, so that what is wrapped is wrapped before another module takes its name. A
wrapper passes everything through until `worker.current` is a worker.
"""

import functools
import os

from . import (
    collectives,
    farewell,
    frameworks,
    global_steps,
    imports,
    meeting,
    offered,
    page,
    renames,
    saves,
    steps,
)
from .worker import current, look_early, observed, tell_of_saves

MARKED = "OUTRIDER_CHECKPOINT_PATH"


def prepare():
    """Wraps what must be wrapped early. Nothing happens until there is a worker."""
    offered.serve()
    renames.follow(current)
    global_steps.prepare(current)
    if MARKED in os.environ:
        from . import marked

        marked.wrap_files()
        tell_of_saves(marked.saved)
    imports.when_imported("torch", _wrap_torch)
    imports.when_imported("torch.optim.optimizer", steps.notice_optimizers)
    imports.when_imported("torch.distributed.distributed_c10d", _wrap_init)
    imports.when_imported("safetensors.torch", lambda module: saves.wrap_safetensors(current, module))
    imports.when_imported(
        "torch.distributed.checkpoint.state_dict_saver",
        lambda module: saves.wrap_distributed_checkpoint(current, module),
    )
    imports.when_imported(
        "torch.distributed.checkpoint.state_dict_loader", lambda module: saves.wrap_distributed_load(current, module)
    )
    imports.when_imported("torch.distributed.checkpoint.state_dict", lambda module: steps.leave_out(current, module))
    frameworks.prepare(current, imports.when_imported)


def _wrap_torch(torch):
    if MARKED in os.environ:
        from . import marked

        saves.wrap_torch(current, torch, marked.here)
    else:
        saves.wrap_torch(current, torch)
    module_class = torch.nn.Module
    evaluate = module_class.eval
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)  # there from torch 2.1 on

    def eval(self):
        if not is_compiling():  # dynamo knows this one, and may trace nothing of ours (fullgraph=True)
            worker = current()
            if worker is not None:
                worker.evaluates()
        return evaluate(self)

    eval.__doc__, eval.__qualname__, eval.__module__ = evaluate.__doc__, evaluate.__qualname__, evaluate.__module__
    eval.__wrapped__, eval.__annotations__ = evaluate, evaluate.__annotations__
    module_class.eval = eval


def _wrap_init(module):
    init = module.init_process_group

    @functools.wraps(init)
    def init_process_group(*args, **kwargs):
        worker = current() or observed()
        if worker is not None:
            try:
                collectives.listen(worker)
            except Exception:  # without the thread nobody can ask; the training goes on
                pass
            try:
                meeting.prepare(args, kwargs)
            except Exception:  # torch waits by itself, only longer
                pass
        result = init(*args, **kwargs)
        _tell_marked()
        return result

    module.init_process_group = init_process_group
    farewell.wrap(current, module)


def _tell_marked():
    if MARKED not in os.environ:
        return
    from . import marked

    try:
        mine = marked.here()
        if mine is not None:
            mine.word.joined()
    except Exception:  # saves to the marked path are ordinary ones then
        pass


def count_steps(worker):
    imports.when_imported("torch.optim.optimizer", lambda module: steps.attach(worker, module))


# -- under a launcher -------------------------------------------------------------------------------------------------
def observe():
    """A Python process of a generation that a launcher runs. Whether it is a rank shows later: when it makes a process
    group or a step. Until then nothing is created."""
    prepare()
    imports.when_imported("torch", look_early)
    imports.when_imported("torch.optim.optimizer", _observe_steps)


def _observe_steps(module):
    """One hook that becomes the counting one: torch forbids changing its hooks while they run."""
    count = None

    def observe_step(optimizer, args, kwargs):
        nonlocal count
        if count is None:
            worker = current() or observed()
            if worker is None:
                return
            count = steps.hook(worker)
            worker.page.source = page.FROM_OPTIMIZER
        count(optimizer, args, kwargs)

    module.register_optimizer_step_post_hook(observe_step)
