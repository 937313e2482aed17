"""Worlds in which the API server is often away, for all or for the present master alone, and ranks end meanwhile."""

from __future__ import annotations

from tests.simulation.faults import PAST_THE_LEASE, Faults
from tests.simulation.world import World

OFTEN = 60


class Outages(Faults):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._kinds += [(OFTEN, self.cut_platform), (OFTEN // 2, self.kill_worker)]

    def cut_platform(self, seconds: float) -> None:
        """Most outlast the Lease, and several ranks end: often a world is not whole then, and nothing may be begun."""
        seconds = self.rng.choice((seconds, seconds + 2 * PAST_THE_LEASE))
        super().cut_platform(seconds)
        for after in range(int(PAST_THE_LEASE) + 5, int(seconds), 5):
            self.world.time.after(after, self._kill_meanwhile, seconds)


class OutageWorld(World):
    FAULTS = Outages
