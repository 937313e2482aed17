"""Counts optimizer steps on the progress page, from torch's global post hook, in well under half a microsecond.

A step is a call of the optimizer that was called first in the process: with two optimizers (a GAN) or one per parameter
(optimizer in backward) an iteration would otherwise count several times. If the first one is gone, or others have long
been called without it (a second stage of training), the one called next takes its place, so that a living training
never looks hung. For a script without torch optimizers (its own, functional training, pure evaluation) the batches that
its DataLoaders deliver are counted.

A step costs three stores into the mapped page, the clock and one comparison. Beside a real step that takes twice as
long as in a loop of its own, because torch has used the processor's caches, so the amount of code counts. Hence there
is no sequence number (0.1 to 0.2 µs); one `pack_into` takes longer than the stores. All rare cases are behind the
comparison: another optimizer, the followed one gone, a phase that is not `step`, a window being measured
(`telemetry.step_window`).

An optimizer is identified by the dict that torch creates for its hooks: reading that attribute takes 0.1 µs less than a
weak reference or `id`. torch has just read it, no copy of the optimizer has the same one, and a reference to it keeps
no parameter alive.
"""

import functools
import time
import weakref

from ..abi import progress_page as pages

OTHERS_BEFORE_CHANGE = 1024
SECONDS_BEFORE_CHANGE = 30


def unset():
    """Stands for the followed optimizer before the first step."""


UNKNOWN = object()
"""Expected value while the next step needs a closer look."""


def hook(worker):
    """The function for register_optimizer_step_post_hook: (optimizer, args, kwargs) -> None. From now on
    `worker.phase_changed` must be called when the page's phase is no longer `step`."""
    words, now, sampler = worker.page.words, time.monotonic_ns, worker.sampler
    made = last = others = 0
    watch, expected = unset, UNKNOWN

    def count(optimizer, args, kwargs):
        nonlocal made, last
        try:
            if optimizer._optimizer_step_post_hooks is not expected and not counts(optimizer):
                return
        except AttributeError:  # this torch has another name for it
            if not counts(optimizer):
                return
        words[5] = made = made + 1
        words[8] = last
        words[7] = last = now()

    def counts(optimizer):
        """Whether this step counts. The page then has the phase `step`, and the next step needs no closer look."""
        nonlocal made, others, watch, expected
        if watch() is not optimizer:
            others += 1
            if sampler.armed:
                sampler.also()
            is_followed = watch() is not None
            if is_followed and (others % OTHERS_BEFORE_CHANGE or now() - last < SECONDS_BEFORE_CHANGE * 10**9):
                return False
            watch, others = weakref.ref(optimizer), 0
            made = words[pages.BASE if worker.page.source == pages.FROM_BATCHES else pages.STEPS]
            worker.page.source = pages.FROM_OPTIMIZER
        is_known = worker.stepped(made + 1)
        expected = getattr(optimizer, "_optimizer_step_post_hooks", UNKNOWN) if is_known else UNKNOWN
        return True

    def phase_changed():
        nonlocal expected
        expected = UNKNOWN

    def restart_counting():
        nonlocal expected, watch, last
        expected, watch, last = UNKNOWN, unset, words[pages.LAST]

    worker.phase_changed, worker.restart_counting = phase_changed, restart_counting
    return count


def leave_out(current, module):
    """`module` is torch.distributed.checkpoint.state_dict. To create the state of a new optimizer it steps it with
    gradients and learning rates of zero; that is not a step of the training."""
    fill = module._init_optim_state

    @functools.wraps(fill)
    def _init_optim_state(*args, **kwargs):
        worker = current()
        before = None if worker is None else worker.page.counted()
        try:
            return fill(*args, **kwargs)
        finally:
            if before is not None and worker.page.counted() != before:
                worker.page.set(*before)
                worker.restart_counting()

    module._init_optim_state = _init_optim_state


def attach(worker, module):
    """`module` is torch.optim.optimizer."""
    worker.page.source = pages.FROM_OPTIMIZER
    module.register_optimizer_step_post_hook(hook(worker))


# -- without an optimizer of torch ------------------------------------------------------------------------------------
_optimizer_made = False


def notice_optimizers(module):
    """`module` is torch.optim.optimizer. A script that has created an optimizer will step it, so its batches do not
    count as steps, however many come before (an evaluation, accumulated gradients)."""
    kind = module.Optimizer
    make = kind.__init__

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        global _optimizer_made
        _optimizer_made = True
        make(self, *args, **kwargs)

    kind.__init__ = __init__


def optimizer_was_made():
    return _optimizer_made


def counter(page):
    """`made(one, asked)` for `data.position.Book`. Without an optimizer a batch counts as a step at its delivery, and
    is consumed when the next one is requested. If an optimizer exists, no batch is consumed before its first step."""
    words = page.words

    def made(one, asked):
        if page.source == pages.FROM_OPTIMIZER:
            return words[pages.STEPS]
        if _optimizer_made:
            return None
        return words[pages.STEPS] if asked else one.seen

    return made


def count_batches(worker, is_current, module):
    """`module` is torch.utils.data.dataloader. Batches are counted at their delivery, since a sampler is drawn ahead of
    its workers (measured: 130 samples for 50 delivered, with four workers)."""
    iterator = getattr(module, "_BaseDataLoaderIter", None)
    if iterator is None:
        return
    deliver, page, sampler = iterator.__next__, worker.page, worker.sampler

    @functools.wraps(deliver)
    def __next__(self):
        if (worker.mover is not None or worker.together.waits) and is_current():
            worker.together.passed()
            if worker.mover is not None:
                worker.mover.at_batch()
        before = worker.spent.waits_for_data() if is_current() else None
        try:
            batch = sampler.wait(lambda: deliver(self)) if sampler.armed and is_current() else deliver(self)
        finally:
            worker.spent.leave(before)
        if not _optimizer_made and is_current():
            page.source = pages.FROM_BATCHES
            last, made = page.words[pages.LAST], page.words[pages.STEPS] + 1
            page.set((pages.STEPS, made), (pages.BEFORE, last), (pages.LAST, time.monotonic_ns()))
            worker.stepped(made)
        if is_current():  # a child process of the script may have a loader too
            page.words[pages.SAMPLES] += samples_of(self)
        return batch

    iterator.__next__ = __next__


def samples_of(iterator):
    """The number of samples in a batch, from the sampler; the last batch of an epoch may have fewer. 0 if unknown."""
    if not getattr(iterator, "_auto_collation", True):
        return 1
    size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", 0)
    return size if isinstance(size, int) and size > 0 else 0
