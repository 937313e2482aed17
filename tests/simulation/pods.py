"""Members and who makes them: the platform, and in each pod a sidecar (the real core) beside a trainer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from outrider.master.core import actions as wanted
from outrider.master.core.events import ActionFailed as MasterActionFailed
from outrider.master.core.events import PodGone, PodSeen, PodsListed
from outrider.sidecar.core import actions as do
from outrider.sidecar.core import events as told
from outrider.sidecar.core import invariants
from outrider.sidecar.core import step as core_step
from outrider.sidecar.core.state import State
from outrider.wire.ids import JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.membership import Welcome
from tests.simulation import hangs
from tests.simulation.inside import SidecarInside
from tests.simulation.memories import Memory
from tests.simulation.network import Link
from tests.simulation.nodes import Nodes
from tests.simulation.processes import Process
from tests.simulation.trainer import Trainer

if TYPE_CHECKING:
    from tests.simulation.world import World

UNIX = 1e9
"""The wall clock when the simulation begins."""


@dataclass(frozen=True, slots=True)
class Heard(told.MasterSaid):
    """A message with what only the simulation knows: which master it is from."""

    term: int = 0


def _check(state: State, _actions: list[do.Action]) -> None:
    invariants.check(state)


CORE = SimpleNamespace(
    step=lambda *a: core_step.step(*a), next_deadline=lambda s: core_step.next_deadline(s), check=_check
)


class Sidecar(SidecarInside, Process):
    stalled = told.Stalled
    woke = told.Woke

    def __init__(self, pod: Pod, restarted: bool) -> None:
        super().__init__(pod.world, f"{pod.member}", *pod.world.sidecar_core(pod))
        self.pod = pod
        self.link: Link | None = None
        self.newest_term = 0
        self.neighbours: tuple[Any, ...] = ()
        self.fetching: do.FetchCopies | None = None
        spec = self.world.scenario.spec
        self.post(
            told.Began(spec.name, pod.member, pod.uid, pod.role, pod.rank_index, "token", pod.address, 4000, spec.nproc,
                       self.world.new_pid(), restarted, alone_after=pod.alone_after or None, word=pod.word)
        )  # fmt: skip
        self._try_link_in(0.05)

    # -- the link to the master
    def _try_link_in(self, seconds: float) -> None:
        self.world.time.after(seconds, self._try_link)

    def _try_link(self) -> None:
        if not self.alive or self.link is not None:
            return
        master = self.world.masters.to_connect()
        if self.paused_at is not None or master is None or self.world.network.is_cut(self.pod.member, master.host):
            self._try_link_in(self.world.rng.uniform(0.2, 2.0))
            return
        self.link = self.world.network.connect(self, master)
        self.post(told.MasterConnected())

    def hear(self, link: Link, message: Any) -> None:
        if link is self.link:
            if isinstance(message, Welcome) and message.neighbours and message.term >= self.newest_term:
                self.world.isolation.told(self, message.neighbours)
            self.post(Heard(message, link.master.term))

    def reads(self, event: Any) -> None:
        if isinstance(event, Heard) and isinstance(event.message, Welcome) and self.link is not None:
            self.newest_term = max(self.newest_term, event.message.term)

    def lost_link(self, link: Link) -> None:
        if link is self.link and self.alive:
            self.link = None
            self.post(told.MasterDisconnected())
            self._try_link_in(self.world.rng.uniform(0.1, 2.0))

    # -- effects
    def perform(self, action: do.Action) -> None:
        if isinstance(self.event, Heard):
            self.world.laws.obeyed(self, self.event, action)
        trainer, time, rng = self.pod.trainer, self.world.time, self.world.rng
        match action:
            case do.Send(message):
                self.world.laws.said(self, message)
                if self.link is not None:
                    self.link.send(True, message)
            case do.StartWorkers(connection, start):
                self.world.laws.start_ordered(self.pod, start)
                self.world.memories.start_ordered(self.pod, start)
                self.world.isolation.told(self, start.neighbours)
                if self._reach(trainer, connection, action):
                    trainer.order("start", start)
            case do.StopWorkers(connection, generation, grace, handler_grace, save_grace):
                if self._reach(trainer, connection, action):
                    trainer.order("stop", generation, grace, handler_grace, save_grace)
            case do.FinishTrainer(connection, exit_code):
                if self._reach(trainer, connection, action):
                    trainer.order("finish", exit_code)
            case do.RunCheck(connection, order=order):
                if self._reach(trainer, connection, action):
                    trainer.order("check", order)
            case do.SaveWorkersState(connection):
                if self._reach(trainer, connection, action):
                    trainer.order("save_state", action)
            case do.CollectFromWorkers(_, order, what):
                if not self.pod.trainer_paused:
                    time.after(0.1, self.post, told.Collected(order, hangs.answer(self.pod, what)))
            case do.FetchCopies():
                self.world.memories.fetch(self, action)
            case do.StopFetching():
                self.fetching = None
            case do.KeepCopies():
                self.world.memories.keep(self.pod, action)
            case do.FindPort():
                time.after(0.001 + 0.01 * rng.random(), self._found_port)
            case do.ReadPages(generation):
                own = self.world.own_times.windows(self.pod)
                self.post(trainer.pages_read(own) if trainer is not None else told.PagesRead(generation, (), own))
            case do.SampleUsage():
                self.post(told.UsageSampled(1.0, 100.0))
            case do.ProbePeer(order, member, address, _, seconds):
                self._probe(order, member, address, seconds)
            case do.ProbeNeighbour(neighbour, seconds):
                reached = self.world.platform.answers(neighbour.address, self.pod.member)
                echo = told.NeighbourProbed(neighbour, reached, 0.002, 0 if reached else 3)
                time.after(0.002 if reached else seconds, self.post, echo)
            case do.KeepWord(word):
                self.pod.word = self.pod.word or word
                self.post(told.WordKept(self.pod.word))
            case do.RunAlone():
                self.world.laws.let_go(self.pod)
            case do.Announce(kind="Isolated"):
                self.world.isolation.stopped(self.pod, self)
            case do.SweepProcesses(trainer=pid):
                if trainer is not None and pid in (0, trainer.pid):
                    time.after(0.01, trainer.die, 137)
            case do.Exit():
                self.pod.sidecar_exited(self)
            case _:
                pass

    def _reach(self, trainer: Trainer | None, connection: str, action: do.Action) -> bool:
        if trainer is not None and trainer.alive and trainer.connection == connection:
            return True
        self.post(told.ActionFailed(action, "ConnectionError: the connection is closed"))
        return False

    def _found_port(self) -> None:
        self.world.ports += 1
        self.post(told.PortFound(self.world.ports, self.pod.memory.copies()))

    def _probe(self, order: int, member: MemberId, address: str, seconds: float) -> None:
        reached = self.world.platform.answers(address, self.pod.member)
        self.world.time.after(0.002 if reached else seconds, self.post, told.PeerProbed(order, member, reached))


class Pod:
    def __init__(self, world: World, member: MemberId, role: Role, rank_index: RankIndex | None) -> None:
        self.world, self.member, self.role, self.rank_index = world, member, role, rank_index
        self.uid = PodUid(f"u{world.new_pid()}")
        self.address = f"10.0.{world.new_pid()}"
        self.phase, self.reason = "pending", ""
        self.unschedulable = False
        self.exit_code: int | None = None
        self.memory_limit = 0
        self.alone_after = world.laws.may_be_let_go()
        """As the webhook has written it."""
        self.is_kept_away = False
        """Its port to the masters was closed from the start, for longer than any other fault lasts."""
        self.word = ""
        """What its volume says for good."""
        self.sidecar: Sidecar | None = None
        self.sidecar_ended = ""
        """Its kubelet does not start it again."""
        self.trainer: Trainer | None = None
        self.trainer_paused = False
        self.there = True
        self.node = ""
        self.deleting = False
        self.grace, self.ends_at = 0.0, 0.0
        self.held_until = 0.0
        """A finalizer keeps it until then, whatever has ended in it."""
        self.finishing = False
        self.memory = Memory()
        self.resources = ""
        self.bad = world.checking.draw()
        """What is wrong with its machine, from the start."""
        self.ran_since = 0.0
        self.restarts: list[float] = []
        self.is_of_history = False
        """Made by a master that was history."""
        self.is_stray = False
        """So made under a name that was used already, or too late for the master that ended the job to know of it."""

    def seen(self) -> PodSeen:
        pod = PodSeen(self.member, self.uid, self.role, self.rank_index, self.phase, self.reason, self.unschedulable,
                      self.exit_code, self.node, memory_limit=self.memory_limit, resources=self.resources,
                      sidecar_ended=self.sidecar_ended if self.phase == "running" else "",
                      alone_after=self.alone_after)  # fmt: skip
        if self.deleting:
            pod = replace(pod, phase="terminating", reason="Deleted", grace=self.grace, ends_at=UNIX + self.ends_at)
        return pod

    @property
    def nodes(self) -> Nodes:
        return self.world.platform.nodes

    @property
    def is_up(self) -> bool:
        sidecar = self.sidecar
        return self.there and sidecar is not None and sidecar.alive and sidecar.paused_at is None

    # -- life
    def run(self) -> None:
        if self.nodes.when_it_runs(self.node, self.run):
            return
        if self.there and self.phase == "pending":
            self.phase = "running"
            self.ran_since = self.world.time.now
            self.world.faults.keep_from_masters(self)
            self.start_sidecar(False)
            self.world.time.after(self.world.rng.uniform(0.3, 3.0), self.start_trainer)
            self.world.platform.changed(self)

    def start_sidecar(self, restarted: bool) -> None:
        if self.nodes.when_it_runs(self.node, self.start_sidecar, restarted):
            return
        is_down = self.sidecar is None or not self.sidecar.alive
        if self.there and self.phase == "running" and is_down and not self.sidecar_ended:
            self.sidecar = Sidecar(self, restarted)
            self.world.time.after(self.world.rng.uniform(0.05, 2.0), self.connect_trainer)

    def start_trainer(self) -> None:
        if self.nodes.when_it_runs(self.node, self.start_trainer):
            return
        if self.there and self.phase == "running" and (self.trainer is None or not self.trainer.alive):
            self.trainer = Trainer(self)
            self.connect_trainer()

    def connect_trainer(self) -> None:
        if self.trainer is not None:
            self.trainer.connect()

    # -- faults and ends
    def kill_sidecar(self) -> None:
        sidecar = self.sidecar
        if sidecar is None or not sidecar.alive:
            return
        sidecar.end()
        if sidecar.link is not None:
            sidecar.link.break_()
        if self.trainer is not None:
            self.trainer.connection = ""
            if self.trainer_paused:  # the next sidecar finds nobody who says what runs
                self.world.charge(self.trainer.running)
        down = self.world.rng.uniform(0.1, 1.5)
        self.world.trouble(self.member, down + 8.0)
        self.world.time.after(down, self.start_sidecar, True)

    def end_sidecar(self) -> None:
        """As where restartPolicy is Never: its ranks run on until the pod goes."""
        if self.is_up and not self.deleting:
            self.sidecar_ended = "ended with exit code 137"
            self.kill_sidecar()
            self.world.pod_failures += 1
            self.world.platform.changed(self)

    def sidecar_exited(self, sidecar: Sidecar) -> None:
        sidecar.end()
        if sidecar.link is not None:
            self.world.time.after(0.01, sidecar.link.break_)
        self.finishing = True
        self.end("succeeded" if self.exit_code in (0, None) else "failed")

    def trainer_ended(self, trainer: Trainer, code: int | None) -> None:
        if not self.there or self.phase != "running":
            return
        self.exit_code = code
        sidecar = self.sidecar
        if self.deleting or (sidecar is not None and sidecar.is_ending):
            return
        now = self.world.time.now
        self.restarts = [at for at in self.restarts if at > now - 60] + [now]
        if len(self.restarts) > 3:
            self.end("failed")
            return
        self.reason = "RestartedTrainer"
        self.exit_code = None
        self.world.platform.changed(self)
        self.world.time.after(self.world.rng.uniform(0.3, 3.0), self.start_trainer)

    def end(self, phase: str) -> None:
        self.kill_all()
        self.phase = phase
        if self.there:
            self.world.platform.changed(self)

    def kill_all(self) -> None:
        if self.sidecar is not None:
            self.sidecar.end()
            if self.sidecar.link is not None:
                self.sidecar.link.break_()
        self.phase = "failed" if self.phase == "running" else self.phase
        if self.trainer is not None:
            self.trainer.die(137)

    def freeze(self, seconds: float, whole: bool) -> None:
        if self.sidecar is None or not self.is_up:
            return
        self.world.trouble(self.member, seconds)
        self.sidecar.pause(seconds)
        if whole and self.trainer is not None and not self.trainer_paused:
            self.trainer_paused = True
            self._runs_settle()
            self.world.time.after(seconds, self._thaw)

    def _thaw(self) -> None:
        self.trainer_paused = False
        self._runs_settle()
        if self.trainer is not None:
            self.trainer.work()
            self.trainer.connect()

    def _runs_settle(self) -> None:
        if self.trainer is not None:
            for worker in self.trainer.workers.values():
                worker.run.settle()

    def told_to_go(self, reason: str, grace: float) -> None:
        if self.sidecar is not None:
            self.sidecar.post(told.TerminationAsked(reason, grace))


class Platform:
    """Makes and removes pods after a while, and tells the masters that watch."""

    host = "api"

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes = Nodes(world)
        self.pods: dict[MemberId, Pod] = {}
        self.ever: set[MemberId] = set()
        self.shown: set[MemberId] = set()
        """Pods that some master knows of: one that is paused has not read what it was told."""
        self.asked: set[MemberId] = set()
        self.refused: set[MemberId] = set()
        self.gone_at: dict[MemberId, float] = {}
        self.full_until = 0.0
        self.fails_until = 0.0

    def living(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.there and pod.phase == "running"]

    def answers(self, address: str, asker: str) -> bool:
        for pod in self.pods.values():
            if pod.address == address:
                return pod.is_up and not self.world.network.is_cut(pod.member, asker)
        return False

    # -- requests
    def takes_requests(self, host: str) -> bool:
        return self.world.time.now >= self.fails_until and not self.world.network.is_cut(self.host, host)

    def request(self, master: Any, action: Any) -> None:
        delay = self.world.rng.choice((0.005, 0.005, 0.05, 0.5))
        self.asked.add(action.member)
        if not self.takes_requests(master.host):
            self.refused.add(action.member)
            self.world.time.after(delay, master.post, MasterActionFailed(action, "the platform does not answer"))
        else:
            do_it = self._create if isinstance(action, wanted.CreatePod) else self._delete
            master.request_at = max(master.request_at, self.world.time.now + delay)
            self.world.time.at(master.request_at, do_it, master, action)

    def _create(self, master: Any, action: wanted.CreatePod) -> None:
        if action.member in self.pods:
            self.tell(master, self.pods[action.member].seen())
            return
        pod = Pod(self.world, action.member, action.role, action.rank_index)
        pod.resources = action.resources
        pod.memory_limit = max(action.memory_limit, self.world.scenario.memory_limit)
        self.world.laws.created(master, pod, action)
        self.add(pod)

    def add(self, pod: Pod) -> None:
        self.ever.add(pod.member)
        self.pods[pod.member] = pod
        self.changed(pod)
        self._schedule(pod)

    def _schedule(self, pod: Pod) -> None:
        if not pod.there:
            return
        now = self.world.time.now
        if now < self.full_until:
            if not pod.unschedulable:
                pod.unschedulable = True
                self.changed(pod)
            self.world.time.at(self.full_until + 0.01, self._schedule, pod)
            return
        pod.unschedulable, pod.node = False, self.nodes.next()
        self.changed(pod)
        self.world.time.after(self.world.rng.uniform(*self.world.scenario.pod_seconds), pod.run)

    def _delete(self, master: Any, action: wanted.DeletePod) -> None:
        pod = self.pods.get(action.member)
        if pod is None or pod.uid != action.uid:
            self.tell(master, PodGone(action.member, action.uid, "not found"))
        else:
            self.terminate(pod, action.grace, "deleted")

    def terminate(self, pod: Pod, grace: float, reason: str) -> None:
        time = self.world.time
        if pod.phase != "running" or grace <= 0:
            time.after(0.05, self.remove, pod, reason, 0.05, grace <= 0)
            return
        if not pod.deleting or time.now + grace < pod.ends_at:
            pod.deleting = True
            pod.grace, pod.ends_at = grace, time.now + grace
            self.changed(pod)
        self._end_in(pod, reason, grace)

    def _end_in(self, pod: Pod, reason: str, grace: float) -> None:
        """What the kubelet does when it sees that a pod is deleted."""
        if pod.there and not self.nodes.when_it_runs(pod.node, self._end_in, pod, reason, grace):
            pod.told_to_go(reason, grace)
            self.world.time.after(grace, self.remove, pod, reason)

    def remove(self, pod: Pod, reason: str, told_after: float = 0.05, by_force: bool = False) -> None:
        """By force: from the platform's memory at once, and by the kubelet when it runs."""
        if self.pods.get(pod.member) is not pod or not pod.there:
            return
        if not by_force and pod.held_until > self.world.time.now:
            pod.kill_all()
            self.world.time.at(pod.held_until + 0.01, self.remove, pod, reason)
            return
        code = pod.exit_code
        pod.there = False
        if not by_force or not self.nodes.when_it_runs(pod.node, pod.kill_all):
            pod.kill_all()
        del self.pods[pod.member]
        self.gone_at[pod.member] = self.world.time.now
        gone = PodGone(pod.member, pod.uid, reason, code)
        self.world.time.after(told_after, self.tell_all, gone)
        self.world.owner.stir()

    # -- the watch
    def changed(self, pod: Pod) -> None:
        self.tell_all(pod.seen())
        self.world.owner.stir()

    def tell_all(self, event: Any) -> None:
        for master in self.world.masters.all:
            self.tell(master, event)

    def tell(self, master: Any, event: Any) -> None:
        if not master.watching:
            return
        if self.world.network.is_cut(self.host, master.host):
            master.watching = False
            return
        self.world.time.after(0.02, partial(master.post, event))

    def list_for(self, master: Any) -> None:
        if not master.alive:
            return
        if self.world.network.is_cut(self.host, master.host):
            self.world.time.after(1.0, self.list_for, master)
            return
        master.watching = True
        self.world.time.after(0.02, master.post, PodsListed(tuple(pod.seen() for pod in self.pods.values())))
        for node in self.nodes.not_ready():
            self.world.time.after(0.02, master.post, node)


JOB = JobName("sim")
