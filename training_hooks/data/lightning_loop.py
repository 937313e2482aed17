"""Fixes the batch count of Lightning's loop over an epoch that is resumed in the middle at a data position.

Lightning counts the batches of an epoch over restarts: it takes `len(loader)` minus the batches of the loaded
checkpoint, and begins with the loader's first batch. (Without a position it trains on the first ones again and never on
as many of the last; measured with 2.6.) Our loader begins after them, and at another world size the rest is not what
Lightning computes. So Lightning gets the length of the whole epoch when it asks for a loader's length, and the resumed
epoch ends after the consumed batches and the rest.

`known` is False if this version's loop is different: then no loader is changed.
"""

import functools
import sys

from . import sharding

MODULES = ("lightning.pytorch.loops", "pytorch_lightning.loops")
known = True


def prepare(book, when_imported):
    """`book()` returns this process's data book, or None."""
    for package in MODULES:
        when_imported(package + ".fit_loop", functools.partial(_wrap, book))


def unknown():
    """The reason why no loader may be resumed here, or None."""
    if known or not any(package + ".fit_loop" in sys.modules for package in MODULES):
        return None
    return "this version of Lightning has an unknown loop over an epoch"


def _wrap(book, module):
    global known
    known = False
    kind, epoch_kind = module._FitLoop, module._TrainingEpochLoop
    setup, advance, begin = kind.setup_data, kind.on_advance_start, epoch_kind.on_run_start

    @functools.wraps(setup)
    def setup_data(self, *args, **kwargs):
        current = book()
        if current is None:
            return setup(self, *args, **kwargs)
        before, current.tells_whole = self._data_fetcher, True
        try:
            result = setup(self, *args, **kwargs)
            left = current.left_for_lightning(self)
        finally:
            current.tells_whole = False
        if left is not None and self._data_fetcher is not before:
            self._outrider_left, self._outrider_whole = left, self.max_batches
            self.max_batches = _seen(self) + left
        return result

    @functools.wraps(advance)
    def on_advance_start(self, *args, **kwargs):
        """Handles the epochs after the resumed one."""
        if getattr(self, "_outrider_left", None) == 0:
            self.max_batches, self._outrider_left = self._outrider_whole, None
        return advance(self, *args, **kwargs)

    @functools.wraps(begin)
    def on_run_start(self, data_fetcher, *args, **kwargs):
        result = begin(self, data_fetcher, *args, **kwargs)
        fit_loop = self.trainer.fit_loop
        left = getattr(fit_loop, "_outrider_left", None)
        if left:
            data_fetcher.length = fit_loop.max_batches = data_fetcher.fetched + left
            fit_loop._outrider_left = 0
        return result

    kind.setup_data, kind.on_advance_start, epoch_kind.on_run_start = setup_data, on_advance_start, on_run_start
    known = True


def _seen(fit_loop):
    return fit_loop.epoch_loop.batch_progress.current.ready


def left(samplers, fit_loop):
    """The batches that are left of an epoch that begins at a position, or None if it begins at its beginning. Lengths
    are those of whole epochs here."""
    combined = fit_loop._combined_loader
    rests, is_resumed = [0], False
    for loader, limit in zip(combined.flattened, combined.limits or ()) if combined is not None else ():
        one = samplers.newest.get(loader.sampler) if getattr(loader, "sampler", None) is not None else None
        is_new = one is not None and one.start > 0 and one.delivered == 0
        whole = rest = len(loader)
        if is_new:
            is_resumed = True
            rest = sharding.batches(one.count, sharding.share(one.whole, one.world, one.rank), one.drop_batch)
        rests.append(min(rest, limit - _seen(fit_loop)) if limit < whole else rest)
    return max(rests) if is_resumed else None
