"""One fault in one fresh job: start it, let it train, hurt it, and read from its traces what became of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from measure.ours import OutriderJob
from measure.peer import TorchrunJob
from measure.processes import Watch, load, send_all
from measure.scenarios import NODES, Repeat, Scenario
from measure.steps import Step, Trace, first_world, time_beyond
from measure.verdict import faults_of, loads

PROBE = Path(__file__).parent.parent / "ddp_probe.py"
WARM_STEPS = 60
"""Two checkpoints of the probe, so that what recognises a checkpoint by its second save knows it."""
LOOK = 0.003
START_LIMIT = 120.0

Job = TorchrunJob | OutriderJob
Found = TypeVar("Found")


def make_job(launcher: str, scenario: Scenario, folder: Path) -> Job:
    script = [str(PROBE), "--trace", str(folder / "trace"), "--checkpoint", str(folder / "probe.pt")]
    log = folder / f"{launcher}.log"
    if launcher == "torchrun":
        return TorchrunJob(NODES, script, log, scenario.minimum, scenario.spares)
    flags = ["--max-relaunches", "0"] if scenario.world < NODES else []
    return OutriderJob(NODES, script, log, scenario.minimum, scenario.spares, flags)


class Trial:
    """`run` does it once. The folder gets the job's log, its checkpoint and its traces."""

    def __init__(self, launcher: str, scenario: Scenario, number: int, limit: float, folder: Path) -> None:
        (folder / "trace").mkdir(parents=True)
        self.scenario, self.number, self.limit, self.folder = scenario, number, limit, folder
        self.job = make_job(launcher, scenario, folder)
        self.trace, self.watch = Trace(folder / "trace"), Watch()
        self.result = Repeat(launcher, scenario.name)

    def run(self) -> Repeat:
        self.job.start()
        try:
            self._measure()
        finally:
            self.job.stop()
            self.watch.close()
        return self.result

    def _measure(self) -> None:
        first = self._trains()
        if first is None:
            return
        old = {step.pid for step in first}
        self.watch.add(old)
        victim = self._victim(first)
        self.result.load = load()
        moment, hit = self._hurt(victim)
        world = self._wait(lambda: first_world(self.trace, old, self.scenario.world), self.limit)
        if world is None:
            self._wrong(f"not within {self.limit:.0f} s" if self.job.is_alive() else "the job ended")
            return
        self.result.recovery = max(step.time for step in world) - moment
        frozen = hit if self.scenario.fault == "freeze" else set[int]()
        self.result.wrong += faults_of(self.trace, old, world, self.watch, frozen)
        if not loads(self.folder / "probe.pt"):
            self._wrong("the checkpoint does not load")
        self._measure_beyond(old, world, moment)

    def _trains(self) -> list[Step] | None:
        """Wait until all ranks train and a spare waits where one was asked for; the ranks' first steps."""
        first = self._wait(lambda: first_world(self.trace, set(), NODES), START_LIMIT)
        if first is None:
            self._wrong(f"did not start within {START_LIMIT:.0f} s")
            return None
        self.result.start = max(step.time for step in first) - self.job.started
        if not self._wait(lambda: self.trace.highest() >= WARM_STEPS and self.job.is_prepared(), 60):
            self._wrong(f"no {WARM_STEPS} steps, or no spare, 60 s after its first step")
            return None
        return first

    def _victim(self, first: list[Step]) -> int:
        """Another rank's process each time. A lost node never hosts torchrun's rendezvous: that is not survived."""
        pids = [s.pid for s in first if self.scenario.fault in ("crash", "hang") or not self.job.is_first(s.pid)]
        return pids[self.number % len(pids)]

    def _hurt(self, victim: int) -> tuple[float, set[int]]:
        """Do the fault; when it was done, and to which processes."""
        if self.scenario.fault in ("crash", "hang"):
            moment = time.time()
            send_all([victim], signal.SIGKILL if self.scenario.fault == "crash" else signal.SIGSTOP)
            return moment, {victim}
        hit = set(self.job.tree_of(victim))
        moment = self.job.lose(victim) if self.scenario.fault == "lose" else self.job.freeze(victim)
        if self.scenario.wants_replacement:
            self.job.replace()
        return moment, hit

    def _measure_beyond(self, old: set[int], world: list[Step], moment: float) -> None:
        pids, high = [step.pid for step in world], self.trace.highest(old)
        beyond = self._wait(lambda: time_beyond(self.trace, pids, high), 20)
        if beyond is None:
            self._wrong(f"the new world did not come beyond step {high} within 20 s")
        else:
            self.result.beyond = beyond - moment

    def _wait(self, condition: Callable[[], Found | None], limit: float) -> Found | None:
        """What the condition gives once it gives something; None after the limit, or when the job has ended."""
        deadline = time.time() + limit
        while time.time() < deadline:
            self.watch.look(LOOK)
            self.trace.read()
            if found := condition():
                return found
            if not self.job.is_alive():
                return None
        return None

    def _wrong(self, sentence: str) -> None:
        self.result.wrong.append(sentence)
