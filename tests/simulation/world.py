"""One seed, one world: builds it, lets faults happen, then lets it recover, and judges."""

from __future__ import annotations

import random
import sys
from collections import deque
from typing import Any

from outrider.master.core import job_kinds
from outrider.master.core.events import StopAsked
from outrider.runtime.journal import line
from outrider.sidecar.core.state import State as SidecarState
from outrider.wire.ids import Generation
from outrider.wire.messages.generation import Start
from tests.simulation.checking import Checking
from tests.simulation.faults import Faults
from tests.simulation.hangs import Hangs
from tests.simulation.isolation import Isolation
from tests.simulation.laws import Laws
from tests.simulation.lines import Lines
from tests.simulation.links import Links
from tests.simulation.masters import CORE as MASTER
from tests.simulation.masters import Masters
from tests.simulation.memories import Memories
from tests.simulation.network import Network
from tests.simulation.own_times import OwnTimes
from tests.simulation.owner import Owner
from tests.simulation.pods import CORE as SIDECAR
from tests.simulation.pods import Platform, Pod
from tests.simulation.scenario import Scenario
from tests.simulation.timeline import Timeline
from tests.simulation.trainer import Run
from tests.simulation.turns import Turns

KEPT = 400
ENDED_SECONDS = 130.0
"""A trainer may take 90 s to finish, and a hung one is ended after that."""


class Broken(AssertionError):
    """A law does not hold."""


class World:
    LAWS, LINKS, HANGS, MEMORIES, FAULTS = Laws, Links, Hangs, Memories, Faults

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.seed, self._verbose = seed, verbose
        self.rng = random.Random(f"world {seed}")
        self.scenario = self.drawn(seed)
        self.time = Timeline()
        self.network = Network(self)
        self.platform = Platform(self)
        self.masters = Masters(self)
        self.laws = self.LAWS(self)
        self.isolation = Isolation(self)
        self.links = self.LINKS(self)
        self.hangs = self.HANGS(self)
        self.lines = Lines(self)
        self.own_times = OwnTimes(self)
        self.checking = Checking(self)
        self.memories = self.MEMORIES(self)
        self.runs: dict[tuple[str, int], Run] = {}
        self.troubles: list[tuple[str, float, str | None]] = []
        self.checkpoint = 0
        self.ports, self._pids, self.port_clashes = 20000, 100, 0
        self.charged: set[Generation] = set()
        self.fault_of_network: set[Generation] = set()
        self.pod_failures = self.pods_given_up = self.out_of_memory = 0
        self.replicas = self.scenario.spec.replicas
        self.script_done = self.stop_asked = self.over = False
        self.ended_with: tuple[int, str] | None = None
        self.steps = 0
        self.recovered_after = 0.0
        self._lines: deque[tuple[str, float, str, object]] = deque(maxlen=KEPT)
        self.owner = Owner(self)
        self.faults = self.FAULTS(self)
        self.turns = Turns(self)

    def drawn(self, seed: int) -> Scenario:
        return Scenario.of(seed)

    def master_core(self, _term: int) -> tuple[Any, Any]:
        """The core of the master of this term, and its state."""
        return MASTER, job_kinds.new(self.scenario.spec)

    def sidecar_core(self, _pod: Pod) -> tuple[Any, Any]:
        return SIDECAR, SidecarState()

    # -- what happens
    def run(self) -> None:
        """Raises Broken (or what a core raised) where the seed fails."""
        self.masters.begin()
        self.owner.stir()
        if self.scenario.stop_at is not None:
            self.time.at(self.scenario.stop_at, self._ask_to_stop)
        while self.time.now < self.scenario.chaos_seconds and self.ended_with is None:
            self._next()
        self.faults.over = True
        calm_at = max([self.time.now, self.faults.last_until])
        while self.time.now < calm_at and self.ended_with is None:
            self._next()
        if self.ended_with is None:
            self._recover(calm_at)
        if self.ended_with is not None:
            self._judge_end(*self.ended_with)
            self._empty()
        self.over = True

    def _ask_to_stop(self) -> None:
        """As a user does: again, until the job has ended."""
        master, grace = self.masters.current, self.scenario.delete_grace
        if self.ended_with is None:
            if master is not None and master.paused_at is None:
                self.stop_asked = True
                is_hard = self.scenario.stop_hard and grace is None
                master.post(StopAsked("the user ends it", is_hard, grace))
            if grace is not None:
                self._delete(grace)
            self.time.after(5.0, self._ask_to_stop)

    def _delete(self, grace: float) -> None:
        """As the platform does behind a job that is deleted: all of its pods go, and who would make others first."""
        self.owner.is_there = False
        for pod in [pod for pod in self.platform.pods.values() if not pod.deleting]:
            self.time.after(random.Random(f"gone {pod.uid}").uniform(0.0, 2.0), self._take, pod, grace)

    def _take(self, pod: Pod, grace: float) -> None:
        if self.platform.pods.get(pod.member) is pod and not pod.deleting:
            self.platform.terminate(pod, grace, "deleted with its job")

    def _empty(self) -> None:
        """Nothing of the job is left some time after its end, where the platform did what it was asked."""
        self.faults.over = True
        until = max(self.time.now, self.faults.last_until) + ENDED_SECONDS
        while self.time.now < until and self._left():
            self._next()
        left = ", ".join(f"{pod.member} {pod.phase}" for pod in self._left())
        if left:
            self.broken(f"{left}: still there {ENDED_SECONDS:.0f} s after the end of the job")

    def _left(self) -> list[Pod]:
        refused = self.platform.refused
        return [p for p in self.platform.pods.values()
                if p.phase in ("pending", "running") and p.member not in refused and not p.is_stray]  # fmt: skip

    def _next(self) -> None:
        self.steps += 1
        self.time.next()

    def _recover(self, calm_at: float) -> None:
        until = calm_at + self.scenario.recovery_seconds
        goal = 0
        while self.time.now < until and self.ended_with is None:
            self._next()
            if self.steps % 10 == 0:  # a script that saves more than it steps is seen stepping now and then
                run = self._best_run()
                if run is not None and goal == 0:
                    goal = run.step() + 10
                if run is not None and run.step() >= goal:
                    self.recovered_after = self.time.now - calm_at
                    return
        if self.ended_with is None:
            self.broken(
                f"training does not go on in {self.scenario.recovery_seconds:.0f} s after the last fault: "
                f"{self._standing()}"
            )

    def _best_run(self) -> Run | None:
        """The one that trains at its full size."""
        if (
            self.scenario.total_steps
            or self.scenario.crash_at is not None
            or self.scenario.import_error
            or self.stop_asked
        ):
            return None  # this job has an end to come to
        nproc = self.scenario.spec.nproc
        unit = self.scenario.spec.node_unit
        full = (
            self.replicas // unit * unit
            if self.scenario.spec.max_relaunches is None and not self.scenario.spec.scaling
            else self.scenario.spec.min_members
        )
        for run in self.runs.values():
            if run.since is not None and run.size >= full * nproc and (run.can_step()):
                return run
        return None

    def _standing(self) -> str:
        master = self.masters.current
        stage = master.standing() if master is not None else "no master"
        pods = ", ".join(f"{p.member} {p.phase}" for p in self.platform.pods.values())
        return f"{stage}; wanted {self.replicas}; {pods}"

    def ended(self, exit_code: int, reason: str) -> None:
        if self.ended_with is None:
            self.ended_with = (exit_code, reason)

    def _judge_end(self, code: int, reason: str) -> None:
        spec = self.scenario.spec
        if self.stop_asked:
            return
        if code == 0:
            if not self.script_done:
                self.broken(f"the job ended well though the script had not: {reason}")
            return
        script = self.scenario.import_error or self.scenario.crash_at is not None
        legit = script or len(self.charged | self.fault_of_network) > spec.max_restarts
        is_short = bool(self.platform.gone_at) or self.pods_given_up > 0 or self.out_of_memory > 0
        is_short = is_short or any(pod.deleting for pod in self.platform.pods.values())
        legit = legit or (spec.max_relaunches is not None and is_short) or self.pod_failures > 0
        legit = legit or self.out_of_memory > spec.relaunch_limit
        if not legit:
            self.broken(
                f"the job failed though only {len(self.charged)} of {spec.max_restarts} restarts were used: {reason}"
            )

    # -- bookkeeping
    def trouble(self, who: str, seconds: float, peer: str | None = None) -> None:
        self.troubles.append((who, self.time.now + seconds, peer))

    def charge(self, generation: Generation) -> None:
        self.charged.add(generation)

    def run_of(self, start: Start) -> Run:
        key = (start.master_addr, start.master_port)
        if key not in self.runs:
            now = self.time.now
            self.runs = {
                k: r for k, r in self.runs.items() if any(w.alive for _, w in r.joined.values()) or not r.joined
            }
            self.runs[key] = Run(self, key, start)
            self.runs[key].last_step_at = now
        return self.runs[key]

    def new_pid(self) -> int:
        self._pids += 1
        return self._pids

    def note(self, name: str, now: float, mark: str, what: object) -> None:
        self._lines.append((name, self.time.now, mark, what))
        if self._verbose:
            print(self._text(self._lines[-1]), file=sys.stdout)

    def story(self, count: int = 60) -> list[str]:
        return [self._text(entry) for entry in list(self._lines)[-count:]]

    def _text(self, entry: tuple[str, float, str, object]) -> str:
        name, now, mark, what = entry
        return f"{name:10} {line(now, mark, what)}"

    def broken(self, sentence: str) -> Any:
        raise Broken(f"seed {self.seed} at {self.time.now:.3f} s: {sentence}")
