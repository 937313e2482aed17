"""Counts optimizer steps on the progress page, from torch's own global post hook, in well under half a microsecond.

A step is a call of the optimizer that was called first in the process: with two of them (a GAN) or one a parameter
(optimizer in backward) an iteration would count several times. When the first is gone, or others have long been called
without it (a second stage of training), the one called next takes its place, so that a living training never looks
hung. A script that makes no optimizer of torch's (its own, functional training, pure evaluation) counts the batches
that its DataLoaders deliver.

Three stores into the mapped page, the clock and one comparison are all that a step pays. What it costs beside a real
step is twice what it costs in a loop of its own, because torch has taken the processor's caches: so it is little code
that counts. Hence no sequence number (0.1 to 0.2 µs); one `pack_into` takes longer than the stores. Everything rare
hides behind the comparison: another optimizer, the followed one gone, a phase that is not `step`, a window being
measured (`telemetry.step_window`).

An optimizer is known by the dict that torch makes it for hooks of its own: to look at that attribute takes 0.1 µs less
than to ask a weak reference, or `id`. torch has just looked at it, no copy of the optimizer has the same one, and to
hold it keeps no parameter alive.
"""

import functools
import time
import weakref

from ..abi import progress_page as pages

OTHERS_BEFORE_CHANGE = 1024
SECONDS_BEFORE_CHANGE = 30


def nobody():
    """What is followed before there was a step."""


UNKNOWN = object()
"""What is expected as long as the next step is to be looked at more closely."""


def hook(worker):
    """The function for register_optimizer_step_post_hook: (optimizer, args, kwargs) -> None. `worker.phase_changed` is
    from now on to be called when the page's phase is no longer `step`."""
    words, now, sampler = worker.page.words, time.monotonic_ns, worker.sampler
    made = last = others = 0
    watch, expected = nobody, UNKNOWN

    def count(optimizer, args, kwargs):
        nonlocal made, last
        try:
            if optimizer._optimizer_step_post_hooks is not expected and not counts(optimizer):
                return
        except AttributeError:  # a torch that names it otherwise
            if not counts(optimizer):
                return
        words[5] = made = made + 1
        words[8] = last
        words[7] = last = now()

    def counts(optimizer):
        """Does this step count? The page says `step` afterwards, and the next one is not looked at."""
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
        expected, watch, last = UNKNOWN, nobody, words[pages.LAST]

    worker.phase_changed, worker.restart_counting = phase_changed, restart_counting
    return count


def leave_out(current, module):
    """`module` is torch.distributed.checkpoint.state_dict. To have a place for what it loads it steps a new optimizer
    whose gradients and learning rates it has set to zero: that is no step of the training."""
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


# -- where there is no optimizer of torch's ---------------------------------------------------------------------------
_optimizer_made = False


def notice_optimizers(module):
    """`module` is torch.optim.optimizer. A script that has made an optimizer will step it, so its batches do not count,
    however many come before (an evaluation, accumulated gradients)."""
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
    """`made(one, asked)` of `data.position.Book`. Without an optimizer a batch counts as a step when it is delivered,
    and is consumed when the next one is asked for; before the first step of one that was made nothing is."""
    words = page.words

    def made(one, asked):
        if page.source == pages.FROM_OPTIMIZER:
            return words[pages.STEPS]
        if _optimizer_made:
            return None
        return words[pages.STEPS] if asked else one.seen

    return made


def count_batches(worker, is_current, module):
    """`module` is torch.utils.data.dataloader. Batches are counted as they are delivered: a sampler is drawn ahead of
    its workers (measured: 130 for 50 with four of them)."""
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
        batch = sampler.wait(lambda: deliver(self)) if sampler.armed and is_current() else deliver(self)
        if not _optimizer_made and is_current():
            page.source = pages.FROM_BATCHES
            last, made = page.words[pages.LAST], page.words[pages.STEPS] + 1
            page.set((pages.STEPS, made), (pages.BEFORE, last), (pages.LAST, time.monotonic_ns()))
            worker.stepped(made)
        if is_current():  # a process of the script's own may have a loader, too
            page.words[pages.SAMPLES] += samples_of(self)
        return batch

    iterator.__next__ = __next__


def samples_of(iterator):
    """How many samples a batch has, where its sampler says so; the last one of an epoch may have fewer. 0: unknown."""
    if not getattr(iterator, "_auto_collation", True):
        return 1
    size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", 0)
    return size if isinstance(size, int) and size > 0 else 0
