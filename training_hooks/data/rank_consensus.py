"""All ranks begin a pass at the same position, or none does. Else they would make different numbers of steps and wait
for each other for ever. Often rank 0 alone loads the checkpoint and the others get its state by broadcast.

They agree over the store of their process group, with a few requests each, whatever the world's size. Who has loaded a
position offers it; the last to arrive closes the matter. A rank that waits in vain (one alone has looked at its data)
closes it too, with nothing for all; whoever comes first decides.
"""

import datetime
import json
import sys

PATIENCE = 30.0
ALL, LATE, DIFFERENT = b"all", b"late", b"different"


def store_of(world):
    """The store of a process group with exactly so many ranks; None where there is none."""
    group = sys.modules.get("torch.distributed.distributed_c10d")
    if group is None or not group.is_initialized() or group.get_world_size() != world:
        return None
    return group._get_default_store()


def agree(store, name, world, offer, patience=PATIENCE):
    """(what all begin with, why it is not what was offered). `offer` is a JSON value or None."""
    place, closed, count = "outrider/%s/offer" % name, "outrider/%s/closed" % name, "outrider/%s/count" % name
    if offer is not None:
        text = json.dumps(offer, sort_keys=True).encode()
        if _first(store, place, text) != text:
            _first(store, closed, DIFFERENT)
    if store.add(count, 1) >= world:
        _first(store, closed, ALL)
    try:
        store.wait([closed], datetime.timedelta(seconds=patience))
        word = store.get(closed)
    except RuntimeError:
        word = _first(store, closed, LATE)
    if word == ALL:
        return (json.loads(store.get(place).decode()) if store.check([place]) else None), ""
    if word == LATE:
        return None, "not all ranks began to read their data within %g s" % patience
    return None, "the ranks have loaded different positions"


def _first(store, key, value):
    """Sets what is not set yet; what it is then."""
    return store.compare_set(key, "", value.decode()) or value
