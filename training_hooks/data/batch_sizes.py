"""Keeps the global batch of a job's first generation at other world sizes: each loader gets its rank's share.

The script's batch size is taken as that of one rank of the first generation. Only a loader with torch's
DistributedSampler can be changed: if the shares are unequal the samples must be cut to fit, or the ranks would make
different numbers of steps.
"""

from . import consumed, sharding

KEPT = "kept"


def adapt(samplers, loader, first_world, torch_data):
    """(`KEPT` or another word, a sentence), or ("", "") if there is nothing to report."""
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
    loader.__dict__["batch_size"] = own  # a loader refuses to change the attribute after its creation
    samplers.wholes[sampler], samplers.script_batches[sampler] = whole, batch
    if loader.drop_last:
        samplers.dropping.add(sampler)
    few, more = whole // world, whole % world
    first = "rank" if more == 1 else "%d ranks" % more
    each = "%d per rank" % few if not more else "%d on the first %s and %d on the others" % (few + 1, first, few)
    sentence = "the global batch stays %d: %s; the script's batch size is %d for the %d ranks of the first generation"
    return KEPT, sentence % (whole, each, batch, first_world)


def _why_not(loader, torch_data):
    why = consumed.not_plain(loader, torch_data)
    if why is None and loader.batch_sampler is None:
        return "it has no batch size"
    return why
