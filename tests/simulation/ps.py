"""Jobs with parameter servers in the same simulation: the same network, platform, sidecars and faults, other laws.

- Who was not hurt is not stopped: whatever happens to others, a member that is well is told to stop by its user alone,
  by the end of the job, or because it made no step though all parameter servers serve.
- Nor is its pod deleted, but as one that is too many.
- Parameter servers that are to have other resources are moved: in the end each has those that were wanted last.
- No rank index is held twice: while a member that the master hears runs, no other one begins in its place.
- Once faults stop, all train again: every chief and worker makes steps, every ps and evaluator runs.

Chiefs and workers make no step while a ps is away. Some are stuck then for good, until they begin again.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from outrider.master.core.events import SpecChanged
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.membership import Finish
from tests.simulation.hangs import Hangs
from tests.simulation.scenario import Scenario
from tests.simulation.trainer import Run
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.masters import Master
    from tests.simulation.pods import Pod
    from tests.simulation.trainer import Worker

TRAINS = ("chief", "worker")
RESIZED = 0.4
"""Jobs whose user wants other resources for a parameter server, once or twice."""
STUCK = 0.5
"""How many sessions do not notice that a ps was away."""
BY_WORD = ("restart was requested", "training is over", "The job", "the job", "is stuck", "EADDRINUSE", "fork failed")


class PsScenario(Scenario):
    @staticmethod
    def of(seed: int) -> Scenario:
        rng = random.Random(f"ps {seed}")
        drawn = Scenario.of(seed)
        most = rng.randint(1, 3)
        spec = replace(
            drawn.spec, min_members=1, max_members=most, replicas=rng.randint(1, most), nproc=1, spares=0,
            max_restarts=1000, max_relaunches=None, is_adopted=False, node_check=False, exclude_stragglers=False,
            rules=(), save_signal="", ps=tuple(f"ps-{n}:2222" for n in range(rng.randint(1, 2))),
            workers=tuple(f"worker-{n}:3333" for n in range(most)), chief=rng.choice(("", "chief-0:3333")),
            has_evaluator=rng.random() < 0.4,
        )  # fmt: skip
        spec = replace(spec, ps_resources=("cpu 1",) * len(spec.ps))
        return replace(drawn, spec=spec, crash_at=None, import_error=False, memory_limit=0)


class Unneeded:
    """What a PS job has not: whatever it is told, it says nothing."""

    def __init__(self, _world: World) -> None:
        pass

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args: None


class PsHangs(Hangs):
    def announced(self, master: Master, action: Any) -> None:
        """Whether it hung is another simulation's question."""


class PsLaws(Unneeded):
    def __init__(self, world: World) -> None:
        self.world = world
        self.hurt: dict[str, float] = {}
        """Members of whom a fault was made, and when last."""
        self.told: set[tuple[int, str, int]] = set()
        """Orders to stop that were looked at; they are repeated until they are done."""

    def sent(self, master: Master, member: str, message: Any) -> None:
        if isinstance(message, Start):
            task = master.task_of(member)
            self._hold(
                task is not None and task.is_saved,
                f"Start of {message.generation} is sent to {member} only after it is saved",
            )
        elif isinstance(message, Stop | Finish):
            self._stopped(master, member, message)

    def _stopped(self, master: Master, member: str, message: Stop | Finish) -> None:
        pod, world = self.world.platform.pods.get(member), self.world
        order = (master.term, member, message.order)
        if order in self.told:
            return
        self.told.add(order)
        if pod is None or self.is_hurt(pod) or master.term < world.masters.term or len(world.masters.all) > 1:
            return
        runs = [w.run for w in pod.trainer.workers.values()] if pod.trainer is not None else []
        if any(isinstance(run, PsRun) and (run.is_stuck or run.missed) for run in runs):
            return  # it hangs like any other, where the master cannot know why: it may not hear that a ps is cut off
        if self.is_to_move(pod):
            return
        is_meant = world.stop_asked or world.script_done or any(word in message.reason for word in BY_WORD)
        self._hold(is_meant, f"{member}, to whom nothing has happened, is told to stop: {message.reason}")

    def deleted(self, master: Master, action: Any) -> None:
        pod, world = self.world.platform.pods.get(action.member), self.world
        if (
            pod is None
            or self.is_hurt(pod)
            or self.is_to_move(pod)
            or master.term < world.masters.term
            or world.stop_asked
            or world.script_done
        ):
            return
        task = master.task_of(action.member)
        is_spare = master.is_spare(action.member)  # whom it was to replace is back
        is_meant = is_spare or task is None or task.removed or master.is_over
        self._hold(is_meant, f"{action.member}, to whom nothing has happened, is deleted: {action.reason}")

    def is_to_move(self, pod: Pod) -> bool:
        """It may serve on until a checkpoint is finished, or its new pod not be there yet."""
        index, wanted = _index(pod), self.world.scenario.spec.ps_resources
        return pod.role == "ps" and (index is None or pod.resources != wanted[index])

    def is_hurt(self, pod: Pod) -> bool:
        troubles = ((who, peer) for who, _until, peer in self.world.troubles)
        troubled = any(pod.member in pair or "master" in pair for pair in troubles)
        return pod.member in self.hurt or troubled or not pod.is_up or pod.deleting or pod.unschedulable

    def forked(self, pod: Pod, start: Start, workers: list[Worker]) -> None:
        for other in self.world.platform.living():
            if other is pod or (other.role, _index(other)) != (pod.role, start.rank_index):
                continue
            living = [w for w in other.trainer.workers.values() if w.alive and not w.stopping] if other.trainer else []
            runs = any(w.start.generation < start.generation for w in living)  # else it is this order that is late
            self._hold(not runs or self.is_hurt(other), f"{pod.member} begins while {other.member} runs in its place")

    def _hold(self, claim: bool, sentence: str) -> None:
        if not claim:
            self.world.broken(sentence)


def _index(pod: Pod) -> int | None:
    """The one that it was last started with."""
    starts = [w.start.rank_index for w in pod.trainer.workers.values()] if pod.trainer is not None else []
    return starts[0] if starts else pod.rank_index


class PsRun(Run):
    """One member's process."""

    missed = is_stuck = False
    role = ""

    def can_step(self) -> bool:
        return super().can_step() and not self.is_stuck and not self.missed

    def _finish(self, token: int) -> None:
        if self.role in TRAINS:
            super()._finish(token)


class PsWorld(World):
    LAWS, LINKS, HANGS, MEMORIES = PsLaws, Unneeded, PsHangs, Unneeded  # type: ignore[assignment]

    def __init__(self, seed: int, verbose: bool = False) -> None:
        super().__init__(seed, verbose)
        self._watch_faults(self.faults)
        self.time.after(0.1, self._look_at_ps)
        wishes = random.Random(f"resources {seed}")
        if wishes.random() < RESIZED:
            for _ in range(wishes.choice((1, 2))):
                self.time.at(wishes.uniform(1.0, self.scenario.chaos_seconds), self._resize, wishes)

    def _resize(self, wishes: random.Random) -> None:
        """The user edits the job: whoever is its master is told, and the next one reads it."""
        wanted = list(self.scenario.spec.ps_resources)
        wanted[wishes.randrange(len(wanted))] = f"cpu {wishes.randint(1, 3)}"
        self.scenario = replace(self.scenario, spec=replace(self.scenario.spec, ps_resources=tuple(wanted)))
        self.note("fault", 0.0, "=", f"the user wants {wanted}")
        for master in self.masters.all:
            master.post(SpecChanged(self.scenario.spec))

    def drawn(self, seed: int) -> Scenario:
        return PsScenario.of(seed)

    def _watch_faults(self, faults: Faults) -> None:
        """Whoever a fault picks is hurt; some faults are everybody's."""
        pick, laws = faults._pod, self.laws

        def picked() -> Pod | None:
            pod = pick()
            if pod is not None:
                laws.hurt[pod.member] = self.time.now  # type: ignore[attr-defined]
            return pod

        faults._pod = picked  # type: ignore[method-assign]
        shared = ("cut", "stall", "reset", "jump", "port_clash", "freeze_node", "platform", "no_room", "supersede",
                  "master", "silent")  # fmt: skip
        faults._kinds = [(w, self._noted(kind, any(s in kind.__name__ for s in shared))) for w, kind in faults._kinds]

    def _noted(self, kind: Any, is_shared: bool) -> Any:
        def happens(seconds: float) -> None:
            if is_shared:
                self.laws.hurt.update({pod.member: self.time.now for pod in self.platform.living()})  # type: ignore[attr-defined]
            kind(seconds)

        happens.__name__ = kind.__name__
        return happens

    # -- parameter servers
    def run_of(self, start: Start) -> Run:
        run = super().run_of(start)
        run.__class__ = PsRun
        run.role = start.role  # type: ignore[attr-defined]
        return run

    def _look_at_ps(self) -> None:
        """Sessions wait while a ps is away, and some of them for ever."""
        serving = self._living("ps")
        is_away = len(serving) < len(self.scenario.spec.ps)
        for pod, worker in [*self._living("chief"), *self._living("worker")]:
            run = worker.run
            if isinstance(run, PsRun) and run.joined and pod.role in TRAINS:
                if is_away and not run.missed and run.step() > run.base and self.rng.random() < STUCK:
                    run.is_stuck = True
                run.missed = is_away
                run.settle()
        self.time.after(0.3, self._look_at_ps)

    def _living(self, role: str) -> list[tuple[Pod, Worker]]:
        trainers = [pod.trainer for pod in self.platform.living() if pod.role == role and pod.trainer is not None]
        return [(t.pod, w) for t in trainers for w in t.workers.values() if w.alive and not w.stopping]

    # -- the end
    def _recover(self, calm_at: float) -> None:
        until, goals = calm_at + self.scenario.recovery_seconds, dict[tuple[str, int], int]()
        while self.time.now < until and self.ended_with is None:
            self._next()
            if self.steps % 10 == 0 and not self._has_an_end() and self._all_train(goals):
                self.recovered_after = self.time.now - calm_at
                return
        if self.ended_with is None:
            limit = f"{self.scenario.recovery_seconds:.0f} s"
            self.broken(f"not all train in {limit} after the last fault: {self._standing()}")

    def _has_an_end(self) -> bool:
        return bool(self.scenario.total_steps) or self.stop_asked

    def _all_train(self, goals: dict[tuple[str, int], int]) -> bool:
        master = self.masters.current
        if master is None or not master.is_ps:
            return False
        for task in master.tasks():
            key = task.key
            there = [(pod, w) for pod, w in self._living(key[0]) if w.start.rank_index == key[1] and pod.is_up]
            living_pods, living = [pod for pod, _w in there], [w for _pod, w in there]
            if not living or task.removed:
                return False
            if key[0] == "ps" and living_pods[0].resources != self.scenario.spec.ps_resources[key[1]]:
                return False
            if key[0] in TRAINS:
                run = living[0].run
                if run.step() < goals.setdefault((key[0], key[1]), run.step() + 5):
                    return False
        return bool(goals)

    def _judge_end(self, code: int, reason: str) -> None:
        if code == 0 and not (self.stop_asked or self.script_done):
            self.broken(f"the job ended well though the script had not: {reason}")
        if code and not (self.pod_failures or self.out_of_memory > 5):
            self.broken(f"the job failed: {reason}")
