"""The length of an epoch for a loop that counts its batches over restarts, as Lightning's does."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from training_hooks.data import consumed, lightning_loop

LENGTH, BATCH = 403, 4


class Sampler:
    """An object that a weak dictionary accepts."""


class Loader:
    def __init__(self, book: Book, world: int, start: int) -> None:
        self.sampler, self.book = Sampler(), book
        self.one = consumed.Pass(
            (LENGTH, 0, True, False, 0), 0, start, BATCH * world, world, 0, BATCH, False, lambda *_: 0
        )
        self.whole = math.ceil(math.ceil(LENGTH / world) / BATCH)

    def __len__(self) -> int:
        return self.whole if self.book.tells_whole else math.ceil(self.one.count / BATCH)


class Book:
    """The part of `data.Book` that the loop uses."""

    def __init__(self) -> None:
        self.tells_whole = False
        self.samplers = SimpleNamespace(newest=weakref.WeakKeyDictionary())

    def left_for_lightning(self, fit_loop: Any) -> int | None:
        return lightning_loop.left(self.samplers, fit_loop)


def module_of(loader: Loader) -> Any:
    """The calls of Lightning's loops that matter, in its order."""

    class EpochLoop:
        def __init__(self, ready: int) -> None:
            self.batch_progress = SimpleNamespace(current=SimpleNamespace(ready=ready))

        def on_run_start(self, fetcher: Any) -> None:
            fetcher.fetched += self.batch_progress.current.ready

    class FitLoop:
        def __init__(self, ready: int) -> None:
            self.epoch_loop: Any = EpochLoop(ready)
            self.epoch_loop.trainer = SimpleNamespace(fit_loop=self)
            self._combined_loader: Any = None
            self._data_fetcher: Any = None
            self.max_batches = 0

        def setup_data(self) -> None:
            if self._combined_loader is None:
                self._combined_loader = SimpleNamespace(flattened=[loader], limits=[len(loader)])
                loader.book.samplers.newest[loader.sampler] = loader.one
                self._data_fetcher = SimpleNamespace(fetched=0, length=len(loader))
                self.max_batches = len(loader)

        def on_advance_start(self) -> None:
            self.setup_data()

    return SimpleNamespace(_FitLoop=FitLoop, _TrainingEpochLoop=EpochLoop)


@pytest.fixture(autouse=True)
def _knows_it_again() -> Iterator[None]:
    yield
    lightning_loop.known = True


@pytest.mark.parametrize(
    ("world", "ready", "start", "epoch", "whole"),
    [(2, 9, 72, 51, 51), (2, 9, 108, 46, 51), (3, 18, 180, 37, 34), (2, 0, 0, 51, 51)],
    ids=["as many ranks", "fewer", "more", "from the beginning"],
)
def test_a_resumed_epoch_has_the_consumed_and_the_remaining_batches_and_later_ones_are_whole(
    world: int, ready: int, start: int, epoch: int, whole: int
) -> None:
    book = Book()
    module = module_of(Loader(book, world, start))
    lightning_loop._wrap(lambda: book, module)
    loop = module._FitLoop(ready)
    loop.setup_data()
    loop.on_advance_start()
    loop.epoch_loop.on_run_start(loop._data_fetcher)
    assert (loop._data_fetcher.fetched, loop._data_fetcher.length, loop.max_batches) == (ready, epoch, epoch)
    loop.on_advance_start()
    assert (loop.max_batches, lightning_loop.known) == (whole, True)


def test_an_unknown_loop_is_not_resumed() -> None:
    with pytest.raises(AttributeError):
        lightning_loop._wrap(lambda: None, SimpleNamespace())
    assert not lightning_loop.known
