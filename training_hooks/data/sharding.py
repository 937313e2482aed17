"""Computes which rank trains on which samples of an epoch, from their order and the part that is done.

An epoch is one list, the same on all ranks: torch's permutation for seed and epoch. A *global step* takes the next
`whole` samples of it (the global batch); rank r of `world` has every world-th of them from the r-th. So the done part
of an epoch is always the beginning of the list, one number, whatever world sizes have trained on it, and the rest can
be divided again. If the ranks' batches are equal, this is torch's DistributedSampler to the index, including its
padding (the list's own beginning, fewer samples than ranks) and its drop_last. If they are not, the first ranks have
one sample more, and all ranks make the same number of steps.
"""


def share(whole, world, rank):
    """A rank's part of a global batch of `whole` samples."""
    return whole // world + (rank < whole % world)


def consumed(length, start, whole, steps):
    """The number of samples done after `steps` global steps from `start`."""
    return min(length, start + steps * whole)


def _cut(left, whole, world, drop_last, drop_batch):
    """(samples of `left` in whole global steps, samples in a last smaller one); a sum above `left` means padding.
    `drop_last` is the sampler's, `drop_batch` the loader's."""
    if whole % world == 0:
        return (left // world * world if drop_last else -(-left // world) * world), 0
    last = left % whole
    if drop_last:
        end = last // world * world
    else:
        end = min(whole, -(-last // world) * world)
    return left - last, 0 if drop_batch and end < whole else end


def count(length, start, whole, world, rank, drop_last=False, drop_batch=False):
    """The number of a rank's samples after `start`."""
    body, end = _cut(length - start, whole, world, drop_last, drop_batch)
    if whole % world == 0:
        return body // world
    return body // whole * share(whole, world, rank) + share(end, world, rank)


def indices(order, start, whole, world, rank, drop_last=False, drop_batch=False):
    """A rank's samples after `start`, in its order."""
    left = order[start:]
    body, end = _cut(len(left), whole, world, drop_last, drop_batch)
    missing = body + end - len(left)
    if missing > 0:
        left = left + (order * -(-missing // len(order)))[:missing]
    if whole % world == 0:
        return left[:body][rank::world]
    mine = []
    for at in range(0, body + end, whole):
        mine += left[at : min(at + whole, body + end)][rank::world]
    return mine


def batches(samples, batch, drop_batch):
    """The number of batches that a loader makes of a rank's samples."""
    return samples // batch if drop_batch else -(-samples // batch)
