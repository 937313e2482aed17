"""`ElasticSampler`: a DistributedSampler that saves its position in the script's own checkpoint.

    from training_hooks import ElasticSampler

    sampler = ElasticSampler(data)                      # the arguments of DistributedSampler
    torch.save({..., "sampler": sampler.state_dict()}, path)
    sampler.load_state_dict(torch.load(path)["sampler"])

The position counts the samples that torch's DataLoader has delivered and an optimizer step has consumed (see
`data.consumed`). The loaded epoch continues after them with any number of ranks; the next epoch is complete again. If
the script makes its batches itself (its own batch_sampler, no DataLoader), they cannot be counted from outside: call
`state_dict(consumed=n)` with the samples that this rank has trained on since the pass began. It works without a job.

    >>> import torch
    >>> from torch.utils.data import DataLoader
    >>> from training_hooks import ElasticSampler
    >>> data = list(range(8))
    >>> sampler = ElasticSampler(data, num_replicas=2, rank=0, shuffle=False)    # two ranks
    >>> weight = torch.nn.Parameter(torch.zeros(1))
    >>> weight.grad = torch.ones(1)
    >>> optimizer = torch.optim.SGD([weight], lr=0.1)
    >>> for batch in DataLoader(data, batch_size=2, sampler=sampler):
    ...     optimizer.step()
    ...     break
    >>> batch.tolist(), sampler.state_dict()["consumed"]                         # on both ranks together
    ([0, 2], 4)
    >>> alone = ElasticSampler(data, num_replicas=1, rank=0, shuffle=False)      # one rank continues
    >>> alone.load_state_dict(sampler.state_dict())
    >>> list(alone)
    [4, 5, 6, 7]
"""

import functools
import importlib
import os
import sys

from ..data import consumed as data_consumed
from ..data import loader_hooks, position_file, sharding
from ..telemetry import step_counter

STATE_VERSION = 1
"""Version of the dict that state_dict() returns."""
NAMES = ("length", "seed", "shuffle", "drop_last")
"""Names of the values that a state and the sampler that loads it must share."""


class _Steps:
    """Counts the optimizer steps of this process, or the requested batches if it has no optimizer."""

    def __init__(self):
        self.count = 0
        optimizers = importlib.import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_post_hook(self._stepped)
        step_counter.notice_optimizers(optimizers)

    def _stepped(self, optimizer, args, kwargs):
        self.count += 1

    def made(self, one, asked):
        if self.count or step_counter.optimizer_was_made():
            return self.count
        return -one.delivered if asked else one.seen


class _Book:
    """Receives the passes that DataLoaders begin over an ElasticSampler, and ignores all other samplers."""

    def __init__(self, made):
        self.samplers, self.made, self.pid = data_consumed.Samplers(), made, os.getpid()

    def loader_made(self, loader):
        pass

    def length(self, sampler):
        return None

    def begin(self, loader):
        sampler, data = loader.sampler, sys.modules["torch.utils.data"]
        if not isinstance(sampler, elastic_sampler()) or data_consumed.not_torchs_batches(loader, data) is not None:
            return None
        one = sampler.begin(data_consumed.batch_of(loader), loader.drop_last)
        self.samplers.fresh[sampler] = one
        return one


@functools.lru_cache(maxsize=None)
def elastic_sampler():
    """Returns the class, created at the first call, because this package does not import torch."""
    data = importlib.import_module("torch.utils.data.distributed")
    book = _Book(_Steps().made)
    loader_hooks.wrap_loaders(lambda: book if book.pid == os.getpid() else None,
                         importlib.import_module("torch.utils.data.dataloader"))  # fmt: skip
    draw = data.DistributedSampler.__iter__

    class ElasticSampler(data.DistributedSampler):
        __doc__ = __doc__
        __module__ = "training_hooks"

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._start, self._start_epoch, self._pass = 0, None, None

        def begin(self, batch, drop_batch):
            """Begins the next pass over the data; a DataLoader with this sampler calls it.

            Arguments:
                batch: the samples that one step takes on each rank, an int from 1.
                drop_batch: whether the loader drops a smaller last batch.

            Returns the pass (`data.consumed.Pass`), whose `indices` gives this rank's samples.
            """
            if self._pass is not None and (self._pass.over or self._pass.steps() > 0):
                self._start_epoch = None
            start = self._loaded()
            key = (len(self.dataset), int(self.seed), bool(self.shuffle), bool(self.drop_last), 0)
            whole = batch * self.num_replicas
            self._pass = data_consumed.Pass(
                key, self.epoch, start, whole, self.num_replicas, self.rank, batch, drop_batch, book.made
            )
            return self._pass

        def __iter__(self):
            one = book.samplers.fresh.pop(self, None) or self.begin(1, False)
            return iter(one.indices(data_consumed.order_of(self, draw)))

        def __len__(self):
            """The number of samples of this rank in this epoch; after a loaded state only those that are left, until
            the next pass begins."""
            one = self._pass
            start = one.start if one is not None and one.epoch == self.epoch else self._loaded()
            world, length = self.num_replicas, len(self.dataset)
            return sharding.count(length, start, world, world, self.rank, bool(self.drop_last))

        def _loaded(self):
            return self._start if self._start_epoch == self.epoch else 0

        def state_dict(self, consumed=None):
            """Returns the position in the current epoch, to be saved with the script's checkpoint.

            It is the same on all ranks if they have made the same number of steps, so one rank may save it for all.

            Arguments:
                consumed: the samples that this rank has trained on since the pass began, an int, if the script makes
                    its batches itself; None if torch's DataLoader makes them.

            Returns a dict of ints and bools: version, length (samples of the data), seed, shuffle, drop_last, epoch,
            consumed (samples of this epoch consumed by all ranks), world (the number of ranks). It raises nothing.

            >>> from training_hooks import ElasticSampler
            >>> sampler = ElasticSampler(range(6), num_replicas=2, rank=1, shuffle=False)
            >>> next(iter(sampler))
            1
            >>> sampler.state_dict(consumed=2)["consumed"]
            4
            """
            one, length = self._pass, len(self.dataset)
            if one is None or one.epoch != self.epoch:
                done = self._loaded()
            elif consumed is not None:
                done = min(length, one.start + consumed * self.num_replicas)
            else:
                done = one.consumed()
            return {
                "version": STATE_VERSION, "length": length, "seed": int(self.seed), "shuffle": bool(self.shuffle),
                "drop_last": bool(self.drop_last), "epoch": self.epoch, "consumed": done, "world": self.num_replicas,
            }  # fmt: skip

        def load_state_dict(self, state):
            """Continues the epoch of a saved state after its consumed samples, with any number of ranks.

            Call it before the DataLoader begins to iterate. It also sets the epoch.

            Arguments:
                state: a dict that state_dict() returned, on any rank.

            Returns None.

            Raises:
                ValueError: the dict is not such a state, or its length, seed, shuffle or drop_last is not that of this
                    sampler.

            >>> from training_hooks import ElasticSampler
            >>> state = ElasticSampler(range(6), num_replicas=2, rank=0).state_dict()
            >>> ElasticSampler(range(7), num_replicas=2, rank=0).load_state_dict(state)
            Traceback (most recent call last):
            ValueError: state: Invalid value: length 6: must be 7, as in this sampler
            """
            if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
                sentence = "state: Invalid value: %r: must be an ElasticSampler state of version %d"
                raise ValueError(sentence % (state, STATE_VERSION))
            if not position_file.is_position(dict(state, nth=0, batch=1)):
                raise ValueError("state: Invalid value: %r: must describe a position in an epoch" % (state,))
            mine = self.state_dict()
            for name in NAMES:
                if state[name] != mine[name]:
                    sentence = "state: Invalid value: %s %r: must be %r, as in this sampler"
                    raise ValueError(sentence % (name, state[name], mine[name]))
            self._start, self._start_epoch, self._pass = state["consumed"], state["epoch"], None
            self.epoch = state["epoch"]

    return ElasticSampler
