"""Agrees on the version that all ranks load: the newest that every rank can read, from memory or storage.

The ranks exchange their versions over the store of their process group; the last rank to arrive reads them all and
decides. A rank whose copy turns out to be damaged reports it afterwards, and the ranks choose again without that copy.
Either all ranks resume from one version, or none does.
"""

import datetime
import json

from ..data import rank_consensus

PATIENCE = 300.0
"""Seconds that a rank waits for the other ranks to call load()."""


class Disagreement(Exception):
    """The ranks cannot agree; the message has the reason."""


def decide(offers):
    """Decides from `offers`, in rank order: {"asks": …, "versions": [[step, generation], …], "wrong": sentence}.
    Returns {"version"}, which is null if there is no common version, or {"error"}."""
    first = offers[0]["asks"]
    for rank, offer in enumerate(offers):
        if offer["asks"] != first:
            return {"error": "the ranks request different states: rank 0 %s, rank %d %s"
                    % (first, rank, offer["asks"])}  # fmt: skip
    common = set.intersection(*({tuple(each) for each in offer["versions"]} for offer in offers))
    wrong = next((offer["wrong"] for offer in offers if offer["wrong"]), "")
    if not common and wrong:
        return {"error": wrong}
    return {"version": max(common, default=None)}


def together(name, world, rank, mine, conclude, patience=PATIENCE):
    """What `conclude` makes of all ranks' values, in rank order. Raises Disagreement."""
    if world == 1:
        return conclude([mine])
    store = rank_consensus.store_of(world)
    if store is None:
        raise Disagreement(
            "load() must come after init_process_group: all %d ranks have to agree on what they load" % world
        )
    place = "outrider/checkpoint/%s/" % name
    store.set(place + str(rank), json.dumps(mine))
    if store.add(place + "count", 1) >= world:
        offers = [json.loads(store.get(place + str(each)).decode()) for each in range(world)]
        store.set(place + "concluded", json.dumps(conclude(offers)))
    try:
        store.wait([place + "concluded"], datetime.timedelta(seconds=patience))
    except RuntimeError:
        missing = [each for each in range(world) if not store.check([place + str(each)])]
        raise Disagreement("rank %s did not call load() within %g s" % (", ".join(map(str, missing)), patience))
    return json.loads(store.get(place + "concluded").decode())
