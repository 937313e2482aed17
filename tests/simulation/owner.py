"""Another controller that makes the pods of some seeds' jobs, as an Indexed Job's does: one for each index, anew as
soon as the one before it is deleted or has failed, whether or not it still runs."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

from outrider.wire.ids import MemberId, RankIndex, Role
from tests.simulation.pods import Pod

if TYPE_CHECKING:
    from tests.simulation.world import World

LETTERS = "bcdfghjklmnpqrstvwxz"


class Owner:
    def __init__(self, world: World) -> None:
        self.world, self._rng = world, random.Random(f"owner's pods {world.seed}")
        self._numbers = count()
        self.is_there = world.scenario.spec.is_adopted

    def stir(self) -> None:
        if self.is_there:
            self.world.time.after(self._rng.choice((0.05, 0.5, 3.0)), self._look)

    def _look(self) -> None:
        if self.world.ended_with is not None or self.world.script_done:
            return
        pods = self.world.platform.pods.values()
        has = {p.rank_index for p in pods if p.there and not p.deleting and p.phase != "failed"}
        wanted = [i for i in map(RankIndex, range(self.world.scenario.spec.replicas)) if i not in has]
        self._rng.shuffle(wanted)
        for index in wanted:
            number = next(self._numbers)
            suffix = f"{LETTERS[number // len(LETTERS) % len(LETTERS)]}{LETTERS[number % len(LETTERS)]}"
            self.world.platform.add(Pod(self.world, MemberId(f"train-{index}-{suffix}"), Role("worker"), index))
