"""What the hooks would tell of each rank's own time. Healthy members differ, and a little from window to window; some
members of some worlds are slow. A reader that comes late tells its newest window only, as a page has one.

Its random numbers are its own and follow from seed, member and step: no other seed's course is changed by it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from outrider.wire.messages.report import OwnTime

if TYPE_CHECKING:
    from tests.simulation.pods import Pod
    from tests.simulation.world import World

EVERY = 5.0
SLOW_WORLDS, SLOW_MEMBERS, FACTOR = 0.3, 0.2, 2.0
SPREAD, NOISE, SHARE = 0.03, 0.1, 0.4


class OwnTimes:
    def __init__(self, world: World) -> None:
        self.world = world
        self.told: dict[int, int] = {}
        """The newest window of each process, by pid."""

    def is_slow(self, member: str) -> bool:
        seed = self.world.seed
        chance = SLOW_MEMBERS if random.Random(f"slow {seed}").random() < SLOW_WORLDS else 0.0
        return random.Random(f"slow {seed} {member}").random() < chance

    def windows(self, pod: Pod) -> tuple[OwnTime, ...]:
        """The new ones of this member."""
        found = []
        for worker in pod.trainer.workers.values() if pod.trainer is not None else ():
            run = worker.run
            stride = max(2, int(EVERY / self.world.scenario.step_seconds))
            number = int(run.step() - run.base) // stride
            if worker.alive and worker.rank in run.joined and number > self.told.get(worker.pid, 0):
                self.told[worker.pid] = number
                found.append(self._window(str(pod.member), worker.local_rank, number * stride))
        return tuple(found)

    def _window(self, member: str, local_rank: int, first: int) -> OwnTime:
        seed, step = self.world.seed, self.world.scenario.step_seconds
        usual = random.Random(f"machine {seed} {member}").lognormvariate(0.0, SPREAD)
        noise = random.Random(f"window {seed} {member} {local_rank} {first}").lognormvariate(0.0, NOISE)
        gap = SHARE * step * usual * noise * (FACTOR if self.is_slow(member) else 1.0)
        return OwnTime(local_rank, first, 8, "recorder and cpu", min(gap, step), 0.1 * gap, step, 7)
