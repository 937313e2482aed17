"""`ElasticSampler`: a DistributedSampler whose position the script keeps in its own checkpoint, also without Outrider.

    from training_hooks import ElasticSampler
    sampler = ElasticSampler(data)                      # what DistributedSampler takes
    torch.save({..., "sampler": sampler.state_dict()}, path)
    sampler.load_state_dict(torch.load(path)["sampler"])

The state is what torch's DataLoader has delivered and an optimizer step has consumed, as in `data.consumed`. The epoch
that it was taken in goes on behind it, in a world of any size; the next one is whole again. Where the batches are not
torch's own (a batch_sampler of the script's, no DataLoader) nobody else can know what was consumed:
`state_dict(consumed=n)` takes the samples that this rank has trained on since the pass began.
"""

import functools
import importlib
import os
import sys

from ..data import consumed as data_consumed
from ..data import loader_hooks, position_file, sharding
from ..telemetry import step_counter

STATE_VERSION = 1
NAMES = ("length", "seed", "shuffle", "drop_last")
"""What must be the same for a state to mean anything."""


class _Steps:
    """Calls of optimizers' steps in this process; of one without any, batches that were asked for."""

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
    """What loaders say of ElasticSamplers; of others nothing."""

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
    """The class, made when it is first asked for: this package imports no torch."""
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
            """The next pass, of which one step takes `batch` samples a rank."""
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
            """Of what is left where a state was loaded for this epoch, until its next pass begins."""
            one = self._pass
            start = one.start if one is not None and one.epoch == self.epoch else self._loaded()
            world, length = self.num_replicas, len(self.dataset)
            return sharding.count(length, start, world, world, self.rank, bool(self.drop_last))

        def _loaded(self):
            return self._start if self._start_epoch == self.epoch else 0

        def state_dict(self, consumed=None):
            """`consumed`: samples of this rank since the pass began, where the batches are the script's own."""
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
            """ValueError where it is no state of such a sampler over such data."""
            if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
                raise ValueError("this is no state of an ElasticSampler of version %d: %r" % (STATE_VERSION, state))
            if not position_file.is_position(dict(state, nth=0, batch=1)):
                raise ValueError("this state says what no position is: %r" % (state,))
            mine = self.state_dict()
            for name in NAMES:
                if state[name] != mine[name]:
                    sentence = "the state is of a sampler with %s %r, and this one has %r"
                    raise ValueError(sentence % (name, state[name], mine[name]))
            self._start, self._start_epoch, self._pass = state["consumed"], state["epoch"], None
            self.epoch = state["epoch"]

    return ElasticSampler
