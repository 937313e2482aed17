"""Who trains on what of an epoch, as arithmetic. It is the order of its samples, the part that is done, and each rank's
share.

An epoch is one list, the same on all ranks: torch's permutation for seed and epoch. A *global step* takes the next
`whole` samples of it (the global batch), of which rank r has every world-th, beginning with the r-th. So what is done
of an epoch is always a beginning of the list, one number, whatever worlds have trained on it: what one world leaves is
cut anew for the next. Where the ranks' batches are equal this is torch's DistributedSampler to the index, its padding
(the list's own beginning, fewer samples than the world has ranks) and its drop_last included. Where they are not, the
first ranks have one sample more, and all make the same number of steps.
"""


def share(whole, world, rank):
    """A rank's part of a global batch of so many samples."""
    return whole // world + (rank < whole % world)


def consumed(length, start, whole, steps):
    """How far the epoch is done after so many global steps behind `start`."""
    return min(length, start + steps * whole)


def _cut(left, whole, world, drop_last, drop_batch):
    """(samples of `left` that are trained on in whole global steps, those in a last smaller one; more than there are
    is padding). `drop_last` is the sampler's, `drop_batch` the loader's."""
    if whole % world == 0:
        return (left // world * world if drop_last else -(-left // world) * world), 0
    last = left % whole
    if drop_last:
        end = last // world * world
    else:
        end = min(whole, -(-last // world) * world)
    return left - last, 0 if drop_batch and end < whole else end


def count(length, start, whole, world, rank, drop_last=False, drop_batch=False):
    """How many samples a rank has of what is left behind `start`."""
    body, end = _cut(length - start, whole, world, drop_last, drop_batch)
    if whole % world == 0:
        return body // world
    return body // whole * share(whole, world, rank) + share(end, world, rank)


def indices(order, start, whole, world, rank, drop_last=False, drop_batch=False):
    """A rank's samples of what is left behind `start`, in its order."""
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
    """How many batches a loader makes of a rank's samples."""
    return samples // batch if drop_batch else -(-samples // batch)
