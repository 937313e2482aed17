"""Counts how far this process is in its data: the samples a DataLoader has delivered and a step has consumed.

Samples that the sampler has drawn do not count; it runs ahead (measured: 130 for 50 delivered). A batch is consumed
when an optimizer steps after its delivery; in a script without a torch optimizer, when the next batch is requested. A
batch that was delivered without a step (a checkpoint before the step, gradients still accumulated) is not in the saved
model, so it is not in the position.

A *pass* is one iteration over a loader. Only a training pass is recorded: a pass that begins without gradients is an
evaluation, and so is one that ends without a step. A pass that is left early is not recorded. A completed one is
recorded only if the script names its epochs (`set_epoch`), since otherwise the next pass is unknown.
"""

import weakref

from . import position_file, sharding

ACCELERATES = (
    "accelerate distributes the samples itself, and a script that skips batches, as transformers' Trainer does, "
    "counts them itself: at another world size it skips the right samples only with split_batches=True"
)


class Pass:
    """One iteration of a loader over its DistributedSampler. The wrapper of the loader (`data.loader_hooks`) maintains
    `delivered` and `taken`, the batches before the last step that was `seen`, and calls `first_step()` if it is set. A
    pass that is `cut` has other samples than torch's."""

    __slots__ = ("batch", "count", "cut", "delivered", "drop_batch", "epoch", "first_step", "iterator", "key", "made",
                 "over", "rank", "seen", "start", "taken", "whole", "world")  # fmt: skip

    def __init__(self, key, epoch, start, whole, world, rank, batch, drop_batch, made):
        self.key, self.epoch, self.start, self.whole = key, epoch, start, whole
        self.world, self.rank, self.batch, self.drop_batch = world, rank, batch, drop_batch
        length, _, _, drop_last, _ = key
        self.count = sharding.count(length, start, whole, world, rank, drop_last, drop_batch)
        self.made = made
        self.delivered = self.taken = 0
        self.over = False
        self.first_step = None
        self.iterator = lambda: None
        self.cut = start > 0 or whole % world != 0
        self.seen = made(self, True)

    def steps(self):
        """The number of batches that a step has consumed."""
        if not self.over and self.made(self, False) != self.seen:
            return self.delivered
        return self.taken

    def consumed(self):
        """The number of the epoch's samples consumed on all ranks."""
        steps, length = self.steps(), self.key[0]
        own = sharding.share(self.whole, self.world, self.rank)
        if steps and steps >= sharding.batches(self.count, own, self.drop_batch):
            return length
        return sharding.consumed(length, self.start, self.whole, steps)

    def indices(self, order):
        _, _, _, drop_last, _ = self.key
        return sharding.indices(order, self.start, self.whole, self.world, self.rank, drop_last, self.drop_batch)

    def position(self):
        return dict(
            zip(position_file.KEY, self.key),
            epoch=self.epoch, consumed=self.consumed(), world=self.world, batch=self.batch,
        )  # fmt: skip


class Samplers:
    """The samplers of this process in the order of their creation, and the newest pass of each."""

    def __init__(self):
        self.numbers = weakref.WeakKeyDictionary()
        self.newest = weakref.WeakKeyDictionary()
        self.fresh = weakref.WeakKeyDictionary()
        """Passes for which the sampler has not been drawn yet, by sampler."""
        self.named = weakref.WeakSet()
        """Samplers whose script sets the epoch."""
        self.wholes = weakref.WeakKeyDictionary()
        """Global batches that differ from the script's own, by sampler."""
        self.script_batches = weakref.WeakKeyDictionary()
        """The script's own batch sizes for the samplers in `wholes`."""
        self.dropping = weakref.WeakSet()
        """Samplers in `wholes` whose loader drops its last batch."""
        self._made = 0

    def made(self, sampler):
        self._made += 1
        self.numbers[sampler] = self._made

    def key(self, sampler):
        """The key of a sampler. `nth`: its number among the living samplers with equal values, in the order of
        creation."""
        alike = _alike(sampler)
        own = self.numbers.get(sampler, 0)
        older = [each for each, number in list(self.numbers.items()) if number < own and _alike(each) == alike]
        return (*alike, len(older))

    def recorded(self):
        """The positions of a checkpoint that is taken now."""
        found = []
        for sampler, one in list(self.newest.items()):
            is_named = sampler in self.named or one.epoch != 0
            if one.steps() == 0 and one.start == 0:
                continue
            if is_named if one.over else one.iterator() is not None:
                found.append(one.position())
        return found

    def trained(self):
        """Whether a step was made on delivered batches."""
        return any(one.steps() > 0 for one in list(self.newest.values()))


def _alike(sampler):
    return (len(sampler.dataset), int(sampler.seed), bool(sampler.shuffle), bool(sampler.drop_last))


def not_plain(loader, torch_data):
    """Why a loader cannot be changed, or None if it has torch's own DistributedSampler and torch's own batches.
    `torch_data` is torch.utils.data."""
    sampler, kind = loader.sampler, torch_data.distributed.DistributedSampler
    why = not_torchs_batches(loader, torch_data)
    if why is not None:
        return why
    if not isinstance(sampler, kind):
        return "its sampler is a %s, and only torch's DistributedSampler has one order for all ranks" % _name(sampler)
    if type(sampler).__iter__ is not kind.__iter__ or type(sampler).__len__ is not kind.__len__:
        return "its sampler %s orders the samples itself" % _name(sampler)
    return None


def not_torchs_batches(loader, torch_data):
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return "its data is an IterableDataset, which no sampler orders"
    batches = loader.batch_sampler
    if batches is not None and (type(batches) is not torch_data.BatchSampler or batches.sampler is not loader.sampler):
        if type(batches).__module__.startswith("accelerate."):
            return ACCELERATES
        return "its batch_sampler is the script's own (%s), whose batches cannot be cut" % _name(batches)
    return None


def batch_of(loader):
    return loader.batch_sampler.batch_size if loader.batch_sampler is not None else 1


def order_of(sampler, drawn):
    """The epoch's whole list, as `drawn`, DistributedSampler's own __iter__, returns it for one rank."""
    alone = object.__new__(type(sampler))
    alone.__dict__.update(sampler.__dict__)
    alone.rank, alone.num_replicas, alone.drop_last = 0, 1, False
    alone.num_samples = alone.total_size = len(sampler.dataset)
    return list(drawn(alone))


def _name(thing):
    return type(thing).__name__
