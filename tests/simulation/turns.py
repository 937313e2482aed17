"""Another job, which is older and lacks room too: this one waits behind it (`k8s/elasticjob/queueing.py` of the core).

Looked at as a shell does, every few seconds. The other job finds room again after a while, and once no more faults
are made.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from outrider.master.core.events import TurnTold

if TYPE_CHECKING:
    from tests.simulation.world import World

LOOK_EVERY = 2.0
OLDER = "other/older"
ASKED, FREED = 0.5, 0.3
"""How likely a look finds the other job without room, and with it again."""
FULL_AT_FIRST = 0.1
"""Of the jobs; who has trained gives no pod back."""


class Turns:
    def __init__(self, world: World) -> None:
        self.world, self.waits = world, 0
        self._rng = random.Random(f"turns {world.seed}")
        world.time.after(LOOK_EVERY, self._look)
        if not world.scenario.spec.is_ps and self._rng.random() < FULL_AT_FIRST:
            world.platform.full_until = self._rng.uniform(3.0, 25.0)

    def _look(self) -> None:
        self.world.time.after(LOOK_EVERY, self._look)
        master = self.world.masters.current
        if master is None or master.paused_at is not None or not master.is_of_this_release:
            return
        luck, is_calm = self._rng.random(), self.world.faults.over
        if master.waits_behind() and (is_calm or luck < FREED):
            master.post(TurnTold(""))
        elif master.lacks_room() and not is_calm and luck < ASKED:
            self.waits += 1
            master.post(TurnTold(OLDER))
