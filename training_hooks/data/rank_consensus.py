"""Makes all ranks begin a pass at the same position, or none.

Otherwise they would make different numbers of steps and wait for each other for ever. Often rank 0 alone loads the
checkpoint, and the others get its state by broadcast. The ranks agree over the store of their process group, with a few
requests each at any world size. A rank that has loaded a position offers it; the last rank to arrive decides. A rank
that has waited too long (it alone reads its data) decides too: no position for all. The first decision counts.
"""

import datetime
import json
import sys

PATIENCE = 30.0
ALL, LATE, DIFFERENT = b"all", b"late", b"different"


def store_of(world):
    """The store of a process group with exactly so many ranks, or None if there is none."""
    group = sys.modules.get("torch.distributed.distributed_c10d")
    if group is None or not group.is_initialized() or group.get_world_size() != world:
        return None
    return group._get_default_store()


def agree(store, name, world, offer, patience=PATIENCE):
    """(the position for all ranks, why it is not the offered one). `offer` is a JSON value or None."""
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
    """Sets a key if it is not set yet; returns its value."""
    return store.compare_set(key, "", value.decode()) or value
