"""Lines that ranks write and that a rule of the user's is about, in some of the jobs: told to the sidecar as the
matcher would, at random moments, also while no master is there to be told.

The laws: a rule that restarts costs one restart of the budget for each generation at most, and so cannot go on for
ever, and it ends no other generation than the one in which the line was written; one that replaces costs none. Every
other law holds as it does for other faults.
"""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

from outrider.master.core.spec import REPLACE, REPLACE_NODE, RESTART, Rule
from outrider.sidecar.core.events import PatternMet
from outrider.wire.ids import Generation
from outrider.wire.messages.log_lines import LineMatched

if TYPE_CHECKING:
    from outrider.master.core.actions import Announce
    from tests.simulation.masters import Master
    from tests.simulation.world import World

PATTERN = "uncorrectable"
HAVE_RULES = 0.15
PAUSE = (1.0, 25.0)
"""Seconds between two lines."""

DIES, LATE = 0.3, 3.0
"""How many who write one die of it, and the most seconds by which who searches their lines is behind."""


def rules_of(seed: int) -> tuple[Rule, ...]:
    rng = random.Random(f"rules {seed}")
    if rng.random() >= HAVE_RULES:
        return ()
    action = rng.choice((RESTART, RESTART, REPLACE, REPLACE_NODE))
    times = rng.choice((1, 1, 2))
    dry = Rule((), RESTART, log_pattern=PATTERN, dry_run=True)
    return (dry, Rule((), action, log_pattern=PATTERN, times=times, within=60.0 if times > 1 else 0.0))


class Lines:
    def __init__(self, world: World) -> None:
        self.world, self.rng = world, random.Random(f"lines {world.seed}")
        self._serials = count(1)
        self._rules = world.scenario.spec.rules
        self._written: set[Generation] = set()
        if self._rules:
            world.time.after(self.rng.uniform(*PAUSE), self._next)

    def announced(self, master: Master, action: Announce) -> None:
        is_history = self.world.masters.term > master.term
        if action.kind == "LogRuleMet" and action.generation not in self._written and not is_history:
            self.world.broken(f"no rank of {action.generation} has written a line: {action.reason}")

    def _next(self) -> None:
        world = self.world
        if world.time.now > world.scenario.chaos_seconds:
            return
        workers = [(pod.trainer, worker) for pod in world.platform.living() if pod.trainer is not None
                   for worker in pod.trainer.workers.values() if worker.alive]  # fmt: skip
        if workers:
            trainer, worker = self.rng.choice(workers)
            generation = worker.start.generation
            self._written.add(generation)
            said = LineMatched(generation, worker.rank, PATTERN, "uncorrectable", next(self._serials))
            world.note("line", 0.0, "=", f"rank {worker.rank} of {generation} writes a line")
            if self._rules[-1].action == RESTART:
                world.charge(generation)
            else:
                world.pod_failures += 1
            if self.rng.random() < DIES:
                trainer.kill(worker, 6)
                world.time.after(self.rng.uniform(0.0, LATE), trainer.tell, PatternMet(said, 0.0))
            else:
                trainer.tell(PatternMet(said, 0.0))
        world.time.after(self.rng.uniform(*PAUSE), self._next)
