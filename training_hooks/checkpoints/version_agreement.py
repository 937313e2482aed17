"""Which version all ranks load: the newest that every one of them can have, wherever it has it from.

The ranks say over the store of their process group what they can have; the last to come reads it all and decides. A
rank whose copy turns out to be damaged says so afterwards, and they choose again without it: either all ranks go on
from one version, or none does.
"""

import datetime
import json

from ..data import rank_consensus

PATIENCE = 300.0
"""Seconds that a rank waits for all others to ask."""


class Disagreement(Exception):
    """A sentence."""


def decide(offers):
    """`offers` by rank: {"asks": …, "versions": [[step, generation], …], "wrong": sentence}. Returns {"version"}, null
    where there is none, or {"error"}."""
    first = offers[0]["asks"]
    for rank, offer in enumerate(offers):
        if offer["asks"] != first:
            return {"error": "the ranks ask for different things: rank 0 for %s, rank %d for %s"
                    % (first, rank, offer["asks"])}  # fmt: skip
    common = set.intersection(*({tuple(each) for each in offer["versions"]} for offer in offers))
    wrong = next((offer["wrong"] for offer in offers if offer["wrong"]), "")
    if not common and wrong:
        return {"error": wrong}
    return {"version": max(common, default=None)}


def together(name, world, rank, mine, conclude, patience=PATIENCE):
    """What `conclude` makes of what all ranks say, in the order of the ranks. Raises Disagreement."""
    if world == 1:
        return conclude([mine])
    store = rank_consensus.store_of(world)
    if store is None:
        raise Disagreement(
            "load() comes after init_process_group: all %d ranks have to agree on what they load" % world
        )
    place = "outrider/checkpoint/%s/" % name
    store.set(place + str(rank), json.dumps(mine))
    if store.add(place + "count", 1) >= world:
        said = [json.loads(store.get(place + str(each)).decode()) for each in range(world)]
        store.set(place + "concluded", json.dumps(conclude(said)))
    try:
        store.wait([place + "concluded"], datetime.timedelta(seconds=patience))
    except RuntimeError:
        missing = [each for each in range(world) if not store.check([place + str(each)])]
        raise Disagreement("within %g s rank %s did not call load()" % (patience, ", ".join(map(str, missing))))
    return json.loads(store.get(place + "concluded").decode())
