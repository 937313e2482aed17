"""Worlds in which the API server is often away, for all or for the present master alone, and ranks end meanwhile."""

from __future__ import annotations

from tests.simulation.faults import Faults
from tests.simulation.world import World

OFTEN = 20


class Outages(Faults):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._kinds += [(OFTEN, self.cut_platform), (OFTEN // 2, self.kill_worker)]


class OutageWorld(World):
    FAULTS = Outages
