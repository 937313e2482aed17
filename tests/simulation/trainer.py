"""The trainer of a member (template and worker processes) and what the processes of one rendezvous do together.

Training steps are made only while every rank of the world is there, runs, and reaches the others; a dead or frozen peer
blocks the rest, or ends them with a torch.distributed error. Saves are whole, and shared by all members.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.sidecar.core import events as told
from outrider.sidecar.core.actions import SaveWorkersState
from outrider.wire.ids import NO_GENERATION, Generation
from outrider.wire.messages.checkpoints import Remembered, Saved
from outrider.wire.messages.generation import Start, WorkerExit
from outrider.wire.messages.node_check import Check, Checked
from outrider.wire.messages.report import OwnTime, RankProgress, Spent
from tests.simulation.moves import Mover

if TYPE_CHECKING:
    from tests.simulation.checking import Probe
    from tests.simulation.pods import Pod
    from tests.simulation.world import World


@dataclass(eq=False, slots=True)
class Worker:
    pid: int
    start: Start
    local_rank: int
    born: float
    run: Run
    alive: bool = True
    stopping: bool = False
    joined_at: float | None = None
    saved_before: float = 0.0
    """What its run had saved for when it joined."""
    hangs: str = ""
    """How, if it does (`hangs.WAYS`)."""

    @property
    def rank(self) -> int:
        return self.start.first_rank + self.local_rank


class Run:
    """The processes that met at one rendezvous."""

    def __init__(self, world: World, key: tuple[str, int], start: Start) -> None:
        self.world, self.key, self.generation, self.size = world, key, start.generation, start.world_size
        self.joined: dict[int, tuple[Pod, Worker]] = {}
        self.base = self.steps = 0.0
        self.since: float | None = None
        self.last_step_at = world.time.now
        self.moved_at = world.time.now
        """Of the last step, or the last change of phase."""
        self.saving_until = 0.0
        self.saved_seconds = 0.0
        self.busy_with = "checkpoint"
        """What it does until then: it may be an evaluation."""
        self._token = 0
        self.finished = False
        self.saves = 0

    def join(self, pod: Pod, worker: Worker) -> None:
        if worker.alive:
            if not self.joined:
                self.base = self.steps = float(self.world.checkpoint)
            self.joined[worker.rank] = (pod, worker)
            worker.joined_at, worker.saved_before = self.world.time.now, self.saved_seconds
            self.settle()

    def step(self) -> int:
        if self.since is None:
            return int(self.steps)
        return int(self.steps + max(0.0, self.world.time.now - self.since) / self.world.scenario.step_seconds)

    def can_step(self) -> bool:
        if len(self.joined) < self.size or self.finished:
            return False
        pods = {}
        for pod, worker in self.joined.values():
            if not worker.alive or worker.stopping or worker.hangs or pod.trainer_paused:
                return False
            pods[pod.member] = pod
        names = list(pods)
        network = self.world.network
        return not network._cut or not any(network.is_cut(a, b) for i, a in enumerate(names) for b in names[:i])

    def settle(self) -> None:
        """Something changed: count the steps until now, and see whether more can be made."""
        now = self.world.time.now
        if self.since is not None:
            if now > self.since:
                before = int(self.steps)
                self.steps += (now - self.since) / self.world.scenario.step_seconds
                self.last_step_at = now
                self.moved_at = now if int(self.steps) > before else self.moved_at
            self.since = None
        self._token += 1
        if self.saving_until > now or not self.can_step():
            return
        self.since = now
        self.world.laws.trains(self)
        scenario = self.world.scenario
        if scenario.crash_at is not None:
            self.world.time.after(0.01, self._script_fails, self._token)
        self.world.time.after(scenario.save_every * scenario.step_seconds, self._save, self._token)
        if scenario.total_steps:
            left = max(0.0, scenario.total_steps - self.steps) * scenario.step_seconds
            self.world.time.after(left, self._finish, self._token)

    def _script_fails(self, token: int) -> None:
        if token == self._token:
            for pod, worker in list(self.joined.values()):
                if pod.trainer is not None:
                    pod.trainer.fail(worker, 1, "ValueError", "the script's own error")

    def _save(self, token: int) -> None:
        if token == self._token:
            scenario = self.world.scenario
            self.saves += 1
            is_evaluation = bool(scenario.evaluates_every) and self.saves % scenario.evaluates_every == 0
            self.busy_with = "eval" if is_evaluation else "checkpoint"
            seconds = self.world.rng.uniform(*scenario.save_seconds)
            self.saving_until = self.world.time.now + seconds
            step = self.step()
            self.settle()
            self.moved_at = self.world.time.now
            self.world.time.after(seconds, self._saved, step)

    def hold(self, seconds: float) -> None:
        """No step is made for so long."""
        now = self.world.time.now
        self.settle()
        self.saving_until, self.busy_with = max(self.saving_until, now + seconds), "checkpoint"
        self.settle()
        self.world.time.after(seconds, self.settle)

    def phase(self) -> str:
        if self.saving_until > self.world.time.now:
            return self.busy_with
        return "step" if self.step() > self.base else "init"

    def _saved(self, step: int) -> None:
        first = self.joined.get(0)
        if first is not None and first[1].alive and first[1].hangs:  # it never comes out of it
            self.saving_until = float("inf")
            return
        self.saved_seconds += self.world.time.now - self.moved_at
        self.moved_at = self.world.time.now
        if self.busy_with == "eval":
            first = None
        if first is not None and first[1].alive and not first[0].trainer_paused:
            self.world.checkpoint = max(self.world.checkpoint, step)
            self.world.memories.saved(self, step)
            pod = first[0]
            if pod.trainer is not None:
                pod.trainer.tell(told.HookSaid(Saved(self.generation, f"/ckpt/{step % 3}.pt", step)))
        self.saving_until = 0.0
        self.settle()

    def _finish(self, token: int) -> None:
        if token == self._token:
            self.settle()
            self.finished = True
            self.world.script_done = True
            for pod, worker in list(self.joined.values()):
                self.world.time.after(0.05 * self.world.rng.random(), self._end, pod, worker)

    def _end(self, pod: Pod, worker: Worker) -> None:
        if pod.trainer is not None and worker.alive and not worker.stopping:
            pod.trainer.ended(worker, 0)

    def peer_died(self) -> None:
        """The others block, or see their connection break."""
        self.settle()
        if self.finished:
            return
        rng = self.world.rng
        for pod, worker in list(self.joined.values()):
            if worker.alive and not worker.stopping and rng.random() < 0.4:
                self.world.time.after(rng.uniform(0.01, 3), self._distributed_error, pod, worker)

    def _distributed_error(self, pod: Pod, worker: Worker) -> None:
        if worker.alive and not worker.stopping and pod.trainer is not None and not self.can_step():
            self.world.fault_of_network.add(self.generation)
            pod.trainer.fail(worker, 1, "torch.distributed.DistBackendError", "Connection closed by peer", effect=True)


class Trainer:
    """A template: forks, stops and reaps on the orders of the sidecar, and says what runs on each connection."""

    def __init__(self, pod: Pod) -> None:
        self.pod, self.world = pod, pod.world
        self.pid = self.world.new_pid()
        self.alive = True
        self.workers: dict[int, Worker] = {}
        self.running = NO_GENERATION
        self.seen = NO_GENERATION
        self.connection = ""
        self._orders: deque[Any] = deque()
        self._exits: list[told.WorkerExited] = []
        self._stop: Generation | None = None
        self._killed = 0
        self.probe: Probe | None = None
        self.answer: Checked | None = None
        self.mover = Mover(self)
        self.remembered: dict[int, Remembered] = {}

    # -- agent.sock
    def connect(self) -> None:
        sidecar = self.pod.sidecar
        if not self.alive or self.connection or sidecar is None or not sidecar.alive:
            return
        if self.pod.trainer_paused:
            return
        self.connection = f"c{self.world.new_pid()}"
        living = tuple((w.local_rank, w.pid) for w in self.workers.values() if w.alive)
        self._say(
            told.HookConnected(self.connection, "template", self.pid, "T0", "a script", self.world.scenario.spec.nproc,
                               None, self.running, living)
        )  # fmt: skip
        for line in self._exits:
            self._say(line)
        if self.answer is not None:
            self._say(told.HookSaid(self.answer))
        self.mover.say_again()
        self.world.memories.say_again(self)

    def tell(self, event: Any) -> None:
        if self.connection and self.alive:
            self._say(event)

    def _say(self, event: Any) -> None:
        sidecar = self.pod.sidecar
        if sidecar is not None and sidecar.alive:
            self.world.time.after(0.0002, sidecar.post, event)

    def order(self, what: str, *args: Any) -> None:
        self._orders.append((what, args))
        self.world.time.after(0.0002, self.work)

    def work(self) -> None:
        while self._orders and self.alive and not self.pod.trainer_paused:
            what, args = self._orders.popleft()
            getattr(self, what)(*args)

    def check(self, order: Check) -> None:
        if self.answer is not None and self.answer.order == order.order:
            self.tell(told.HookSaid(self.answer))
        elif self.probe is None or self.probe.order.order != order.order:
            self.world.checking.begin(self, order)

    # -- starting
    def start(self, order: Start) -> None:
        living = any(w.alive for w in self.workers.values())
        if order.generation == self.running and self._stop is None:
            self.tell(told.WorkersStarted(order.generation, tuple(w.pid for w in self.workers.values())))
        elif living or order.generation <= self.seen or self.world.rng.random() < self.world.scenario.fork_fails:
            self.world.charge(order.generation)
            self.tell(told.WorkersNotStarted(order.generation, "[Errno 11] the fork failed"))
        else:
            self._fork(order)

    def _fork(self, order: Start) -> None:
        world, rng = self.world, self.world.rng
        world.checking.interrupt(self)
        self.seen = self.running = order.generation
        self._exits = []
        run = world.run_of(order)
        self.workers = {
            i: Worker(world.new_pid(), order, i, world.time.now, run) for i in range(order.nproc)
        }  # fmt: skip
        world.laws.forked(self.pod, order, list(self.workers.values()))
        for worker in self.workers.values():
            world.time.after(rng.uniform(*world.scenario.init_seconds), self._initialised, worker)
        pids = tuple(w.pid for w in self.workers.values())
        world.time.after(0.02, self.tell, told.WorkersStarted(order.generation, pids))

    def _initialised(self, worker: Worker) -> None:
        if not worker.alive or worker.stopping or worker.hangs:
            return
        if self.world.scenario.import_error:
            self.fail(worker, 1, "ImportError", "no module named nowhere", in_import=True)
        elif self.world.port_clashes > 0 and worker.rank == 0:
            self.world.port_clashes -= 1
            self.fail(worker, 1, "torch.distributed.DistNetworkError",
                      "The server socket has failed to listen on any local network address: EADDRINUSE")  # fmt: skip
        else:
            worker.run.join(self.pod, worker)
            self.mover.joined(worker)

    def save_state(self, order: SaveWorkersState) -> None:
        self.mover.save(order)

    # -- ends
    def fail(
        self, worker: Worker, code: int, kind: str, text: str, *, in_import: bool = False, effect: bool = False
    ) -> None:
        self.ended(worker, code, None, kind, text, in_import, effect)

    def kill(self, worker: Worker, signal: int, *, out_of_memory: bool = False) -> None:
        self.ended(worker, None, signal, out_of_memory=out_of_memory)

    def ended(self, worker: Worker, code: int | None, signal: int | None = None, kind: str = "", text: str = "",
              in_import: bool = False, effect: bool = False, out_of_memory: bool = False) -> None:  # fmt: skip
        if not worker.alive:
            return
        step = worker.run.step()
        worker.alive = False
        if worker.stopping:
            self._reaped()
            return
        if code != 0 and not effect:
            self.world.charge(worker.start.generation)
        frame = "train.py:9 main" if kind else ""
        exit = WorkerExit(
            worker.local_rank, worker.pid, code, signal, out_of_memory, 0.0, step, kind, text, frame, "", in_import
        )
        line = told.WorkerExited(worker.start.generation, exit)
        self._exits.append(line)
        self.world.time.after(0.005, self.tell, line)
        if code != 0:
            worker.run.peer_died()

    def stop(self, generation: Generation, grace: float, handler_grace: float, save_grace: float) -> None:
        living = [w for w in self.workers.values() if w.alive]
        self.world.checking.interrupt(self)
        if not living or self.running > generation:
            self.seen = max(self.seen, generation)
            if self.running <= generation:
                self._done()
            self.tell(told.WorkersStopped(generation, 0))
            return
        begun = self._stop is not None
        self._stop = max(generation, self._stop or generation)
        if begun:
            return
        rng, now = self.world.rng, self.world.time.now
        for worker in living:
            saving = min(max(0.0, worker.run.saving_until - now), save_grace)
            slow = rng.uniform(0, handler_grace) if self.world.scenario.handles_sigterm else rng.choice((0.005, grace))
            worker.stopping = True
            self.world.time.after(saving + slow + rng.uniform(0.001, 0.03), self._stopped, worker)
            worker.run.settle()

    def _stopped(self, worker: Worker) -> None:
        if worker.alive and self.alive:
            worker.alive = False
            self._reaped()

    def _reaped(self) -> None:
        if self._stop is not None and not any(w.alive for w in self.workers.values()):
            generation, self._stop = self._stop, None
            self.seen = max(self.seen, generation)
            self._done()
            self.tell(told.WorkersStopped(generation, 0))

    def _done(self) -> None:
        self.running, self.workers, self._exits = NO_GENERATION, {}, []

    def finish(self, code: int) -> None:
        self.die(code)

    def die(self, code: int | None) -> None:
        """The template ends; its workers die with it."""
        if not self.alive:
            return
        self.alive = False
        for worker in self.workers.values():
            if worker.alive:
                worker.alive = False
                worker.run.peer_died()
        sidecar = self.pod.sidecar
        if sidecar is not None:
            self.world.time.after(0.002, sidecar.post, told.TrainerEnded(self.pid))
            if self.connection:
                self.world.time.after(0.003, sidecar.post, told.HookDisconnected(self.connection, False))
        self.pod.trainer_ended(self, code)

    def pages_read(self, own: tuple[OwnTime, ...]) -> told.PagesRead:
        first = self.workers.get(0)
        spent = None if first is None or not first.alive else self._spent(first)
        return told.PagesRead(self.running, self.pages(), own, spent)

    def _spent(self, worker: Worker) -> Spent:
        now, run = self.world.time.now, worker.run
        age = now - worker.born
        if worker.joined_at is None:
            return Spent(age, step_age=age, doing="importing", doing_for=age / 2)
        init = worker.joined_at - worker.born
        saved = run.saved_seconds - worker.saved_before
        has_stepped = run.steps > run.base and run.step() > run.base
        step_age = (now - run.last_step_at if run.since is None else 0.0) if has_stepped else age
        is_saving = run.saving_until > now
        return Spent(
            age,
            max(0.0, age - init - self.world.scenario.step_seconds) if has_stepped else -1.0,
            min(step_age, age),
            init / 2,
            init / 4,
            init / 4,
            saved,
            doing="checkpoint" if is_saving else "",
            doing_for=max(0.0, now - run.last_step_at) if is_saving else 0.0,
        )

    def pages(self) -> tuple[RankProgress, ...]:
        now = self.world.time.now
        found = []
        for worker in self.workers.values():
            if worker.alive:
                run = worker.run
                joined = worker.rank in run.joined
                stepping = run.since is not None
                age = 0.0 if stepping else now - (run.last_step_at if joined and run.steps > run.base else worker.born)
                phase = run.phase() if joined else "init"
                step = run.step() if joined else 0
                seconds = self.world.scenario.step_seconds
                found.append(
                    RankProgress(worker.local_rank, step, max(0.0, age), phase, seconds, base=run.base if joined else 0)
                )
        return tuple(found)
