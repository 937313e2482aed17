"""The global batch of a job's first world, kept in worlds of another size. Each loader gets its rank's share of it.

The script's batch size is taken for what one rank of the first world had. Only a loader with torch's DistributedSampler
can be changed: where the shares are unequal the samples must be cut to fit, or the ranks would make different numbers
of steps.
"""

from . import consumed, sharding

KEPT = "kept"


def adapt(samplers, loader, first_world, torch_data):
    """(`KEPT` or another word, a sentence); nothing to say: ("", "")."""
    why = _why_not(loader, torch_data)
    if why is not None:
        return "not kept", "a DataLoader keeps its batch size: %s" % why
    sampler, batch = loader.sampler, consumed.batch_of(loader)
    world, whole = sampler.num_replicas, batch * first_world
    if world == first_world:
        return "", ""
    if world > whole:
        return "not kept", "a DataLoader keeps its batch size: %d ranks cannot share a global batch of %d" % (
            world, whole)  # fmt: skip
    own = sharding.share(whole, world, sampler.rank)
    loader.batch_sampler.batch_size = own
    loader.__dict__["batch_size"] = own  # after its birth a loader refuses to be told
    samplers.wholes[sampler], samplers.asked[sampler] = whole, batch
    if loader.drop_last:
        samplers.dropping.add(sampler)
    few, more = whole // world, whole % world
    first = "rank" if more == 1 else "%d ranks" % more
    each = "%d a rank" % few if not more else "%d on the first %s and %d on the others" % (few + 1, first, few)
    return KEPT, "the global batch stays %d: %s, where the script says %d for the %d ranks of the first world" % (
        whole, each, batch, first_world)  # fmt: skip


def _why_not(loader, torch_data):
    why = consumed.not_plain(loader, torch_data)
    if why is None and loader.batch_sampler is None:
        return "it has no batch size"
    return why
