"""Hangs: ranks that make no step while all processes live, what they say of themselves, and the laws about them.

A rank hangs as one of three: its process is stopped, it does not come to a collective, or it is busy in C and holds
the GIL. The laws: a world that trains, saves or evaluates within its limits is never taken for hung, unless one of its
ranks is stopped or has ended; who is replaced for hangs has hung twice; and a hang ends,
within its limit, which is part of the time in which training has to go on once faults are over.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from outrider.master.core.hangs.detector import KIND
from outrider.master.core.hangs.progress_watch import LOOK
from tests.unit.master.core.ranks import Answers, body, elsewhere, holds_the_gil, is_stopped, trains_on, waits

if TYPE_CHECKING:
    from outrider.master.core.actions import Announce
    from tests.simulation.masters import Master
    from tests.simulation.pods import Pod
    from tests.simulation.trainer import Run, Worker
    from tests.simulation.world import World

WAYS = {"stopped": is_stopped(), "skips": elsewhere(13), "gil": holds_the_gil()}
TOLD_LATE = 2.5
"""Seconds by which the master may know of progress less than there is: the pause between two reports, and their way."""


def answer(pod: Pod, what: str) -> str:
    """What a member's ranks say when they are asked."""
    trainer = pod.trainer
    workers = [] if trainer is None else [w for w in trainer.workers.values() if w.alive]
    return body([_words(w).row(w.rank, w.local_rank, what, _quiet(w.run)) for w in workers])


def _words(worker: Worker) -> Answers:
    if worker.hangs:
        return WAYS[worker.hangs]
    return trains_on() if worker.run.since is not None else waits(14)


def _quiet(run: Run) -> float:
    return max(0.0, run.world.time.now - run.moved_at)


def _quiet_as_told(run: Run) -> float:
    """As the master may know it: that training went on a moment before its verdict has not come there yet."""
    now = run.world.time.now
    if run.since is None:
        return _quiet(run)
    return max(0.0, run.since - run.moved_at) if now - run.since < TOLD_LATE else 0.0


def _phases_as_told(run: Run) -> set[str]:
    """And the one before, where its first step is not known there yet."""
    is_news = run.since is not None and run.world.time.now - run.since < TOLD_LATE
    return {run.phase(), "init"} if is_news else {run.phase()}


def _is_beyond_doubt(run: Run) -> bool:
    """One is stopped, or has ended, and the others wait for it."""
    return any(worker.hangs == "stopped" or not worker.alive for _, worker in run.joined.values())


class Hangs:
    def __init__(self, world: World) -> None:
        self.world = world
        self._began: Counter[str] = Counter()

    def begins(self, pod: Pod, worker: Worker, way: str) -> None:
        self._began[pod.member] += 1
        worker.hangs = way
        worker.run.settle()

    def are_repeated(self, member: str) -> bool:
        """It is to be replaced, however well it looks by now."""
        return self._began[member] > 1

    def announced(self, master: Master, action: Announce) -> None:
        """The world was no better than the master says; then its end costs a restart, or a failed pod."""
        if action.kind != KIND:
            return
        self.world.charge(action.generation)
        if "is replaced" in action.reason:
            self.world.pod_failures += 1
            if not self.are_repeated(str(action.member)):
                self.world.broken(f"{action.member} has not hung twice: {action.reason}")
        if self.world.masters.term > master.term:  # it is history, and hears nothing
            return
        spec = self.world.scenario.spec
        for run in [run for run in self.world.runs.values() if run.generation == action.generation]:
            patience = {"step": spec.hang_step or 60.0, "init": spec.hang_init, "checkpoint": spec.hang_checkpoint,
                        "eval": spec.hang_eval}  # fmt: skip
            least = min(patience[phase] or 0.0 for phase in _phases_as_told(run))
            if spec.hang_step is None and _is_beyond_doubt(run):
                least = LOOK
            quiet = _quiet_as_told(run)
            if quiet < least - TOLD_LATE:
                self.world.broken(f"generation {run.generation} is taken for hung after {quiet:.1f} s without progress "
                                  f"in its {run.phase()}: {action.reason}")  # fmt: skip
