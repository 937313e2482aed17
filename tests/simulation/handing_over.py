"""Worlds in which each status that a master saves is read at once by another one, which would save the same of what it
cannot find by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from outrider.master.core.events import Began
from outrider.master.core.state.job import State
from outrider.master.core.status import persist
from tests.simulation.laws import Laws
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.masters import Master

FOUND_BY_ITSELF = {"term", "stage", "reserved", "ended", "world", "left",
                   "members", "addresses", "silent", "met", "checked", "account"}  # fmt: skip
"""From members and their Hellos; the account counts the time without a master as unknown."""


class HandingOverLaws(Laws):
    world: HandingOver

    def saved(self, master: Master) -> None:
        super().saved(master)
        state: State = master.state
        kept = json.loads(json.dumps(persist.saved(state)))
        later = State(now=state.now + 1.0)
        persist.begin(later, Began(state.term + 1, state.spec, {"saved": kept}, later.now + state.unix_offset))
        again = json.loads(json.dumps(persist.saved(later)))
        for key in kept.keys() - FOUND_BY_ITSELF:
            self._hold(kept[key] == again[key], f"{key}: {kept[key]} was saved, and {again[key]} by who had read it")
        earlier = later.earlier
        read = [earlier.saved_world, earlier.saved_left, [*earlier.saved_numbers]]
        self._hold(read == [kept["world"], kept["left"], kept["reserved"]], f"the worlds were read as {read}")
        self.world.handed_over += 1


class HandingOver(World):
    LAWS = HandingOverLaws
    handed_over = 0
