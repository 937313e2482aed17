"""Performs the core's actions, each by one line or one call; the pump turns exceptions into events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from outrider.runtime.logs import announce
from outrider.runtime.ports import find_port
from outrider.sidecar.core import environment
from outrider.sidecar.core.actions import (
    Action,
    Announce,
    AnswerHere,
    CollectFromWorkers,
    Exit,
    FetchCopies,
    FindPort,
    FinishTrainer,
    KeepCopies,
    KeepWord,
    ProbeNeighbour,
    ProbePeer,
    ReadPages,
    RefuseHook,
    RunAlone,
    RunCheck,
    SampleUsage,
    SaveWorkersState,
    Send,
    StartWorkers,
    StopFetching,
    StopWorkers,
    SweepProcesses,
    TellTrainer,
)
from outrider.sidecar.core.events import (
    CopiesFetched,
    Event,
    HookDisconnected,
    NeighbourProbed,
    PagesRead,
    PeerProbed,
    PortFound,
    TrainerEnded,
    WordKept,
    WorkerExited,
    WorkersStopped,
)
from outrider.sidecar.core.outbox import FIRST
from outrider.sidecar.shell import alone_word
from outrider.sidecar.shell.ask_socket import Askers
from outrider.sidecar.shell.checkpoints import Checkpoints
from outrider.sidecar.shell.hooks_link import HooksLink
from outrider.sidecar.shell.hooks_protocol import Line
from outrider.sidecar.shell.master_link import MasterLink
from outrider.sidecar.shell.peer_probes import Probes
from outrider.sidecar.shell.progress_pages import PageReader
from outrider.sidecar.shell.resource_usage import UsageSampler
from outrider.sidecar.shell.step_windows import WindowReader
from outrider.sidecar.shell.trainers import Trainers
from outrider.wire.ids import NO_GENERATION, Generation
from outrider.wire.messages.checkpoints import Fetch
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import Hello

FINISHING = "finishing"
"""A file that shows the local node that this member's trainer ends on order, whatever its exit code."""

log = logging.getLogger("sidecar")


@dataclass(slots=True)
class SidecarEffects:
    """Connects one member's core to its sockets, files and processes."""

    volume: str
    put: Callable[[Event], None]
    stop: Callable[[int], None]
    master: MasterLink
    hooks: HooksLink
    askers: Askers
    pages: PageReader
    windows: WindowReader
    usage: UsageSampler
    probes: Probes
    trainers: Trainers
    checkpoints: Checkpoints
    token: Callable[[], str]
    """Reads the current token: a cluster replaces tokens before they expire."""
    gpus: tuple[str, ...] = ()
    """CUDA_VISIBLE_DEVICES by rank index, if local members share the machine's GPUs; otherwise empty."""
    _generation: Generation = NO_GENERATION
    """The newest generation whose pages were read."""

    def perform(self, action: Action) -> Coroutine[object, object, None] | None:
        match action:
            case Send(Hello() as hello):
                self.master.send(replace(hello, token=self.token()))
            case Send(message):
                self.master.send(message)
            case StartWorkers(connection, start):
                self.hooks.tell(connection, start_line(start, self.volume, self.gpus))
            case StopWorkers(connection, generation):
                self.hooks.tell(connection, stop_line(action, generation))
            case FinishTrainer(connection, exit_code, last_words=words):
                Path(self.volume, FINISHING).touch()
                self.hooks.tell(connection, {"do": "finish", "code": exit_code, **({"say": words} if words else {})})
            case RunCheck(connection):
                self.hooks.tell(connection, check_line(action))
            case CollectFromWorkers(connection, order, what):
                self.hooks.collect(connection, order, what)
            case AnswerHere(order, body):
                self.askers.answer(order, body)
            case SaveWorkersState(connection, order, seconds, last, generation, signal=signal):
                line = {"order": order, "generation": _pair(generation), "seconds": seconds, "last": last}
                line |= {"signal": signal} if signal else {}
                self.hooks.tell(connection, {"do": "save_state", **line})
            case KeepWord(kept, trainer):
                self.put(WordKept(alone_word.keep(Path(self.volume), kept, trainer)))
            case RunAlone(connection, _, reason):
                self.hooks.tell(connection, {"do": "alone", "say": reason})
            case TellTrainer(connection, _, reason):
                self.hooks.tell(connection, {"do": "say", "text": reason})
            case RefuseHook(connection, _, reason):
                self.hooks.refuse(connection, reason)
            case FindPort():
                self.put(PortFound(find_port(), self.checkpoints.copies()))
            case KeepCopies(step):
                self.checkpoints.keep(step)
            case FetchCopies(order, nproc):
                return self._fetch(order, nproc)
            case StopFetching():
                self.checkpoints.stop()
            case ReadPages(generation):
                self.put(self._read_pages(generation))
            case SampleUsage(pids):
                self.put(self.usage.sample(pids))
            case ProbePeer():
                return self._probe(action)
            case ProbeNeighbour():
                return self._probe_neighbour(action)
            case SweepProcesses():
                self._sweep(action)
            case Announce(kind, reason, generation, severity, detail):
                shown = {"generation": str(generation), **dict(detail)} if generation.number else dict(detail)
                announce(log, kind, reason, severity, shown)
            case Exit(exit_code, _, reason):
                announce(log, "Exit", reason)
                self.probes.say_farewell()
                self.stop(exit_code)
            case _:
                assert_never(action)
        return None

    def _read_pages(self, generation: Generation) -> PagesRead:
        self._generation = generation
        ranks = self.pages.read(generation)
        windows = self.windows.read(generation, tuple(rank.local_rank for rank in ranks))
        return PagesRead(generation, ranks, windows, self.pages.spent(generation, FIRST) if ranks else None)

    async def _fetch(self, order: Fetch, nproc: int) -> None:
        answer = await self.checkpoints.fetch(order, nproc)
        self.put(CopiesFetched(answer, self.checkpoints.copies()))

    async def _probe(self, probe: ProbePeer) -> None:
        echo = await self.probes.reach(probe.address, probe.port, probe.seconds)
        self.put(PeerProbed(probe.order, probe.member, echo.came))

    async def _probe_neighbour(self, probe: ProbeNeighbour) -> None:
        echo = await self.probes.reach(probe.neighbour.address, probe.neighbour.port, probe.seconds)
        self.put(NeighbourProbed(probe.neighbour, echo.came, echo.round_trip, echo.lost))

    def _sweep(self, action: SweepProcesses) -> None:
        killed = self.trainers.sweep_trainer(action.trainer) if action.trainer else self.trainers.sweep_all()
        if killed:
            announce(log, "ProcessesKilled", action.reason, detail={"pids": str(killed)})

    def enrich(self, event: Event) -> list[Event]:
        """Adds the progress pages' content at the time of an end to the event that reports it."""
        match event:
            case WorkerExited(generation, exit):
                progress = self.pages.read_rank(generation, exit.local_rank)
                known = {name: getattr(exit, name) for name in type(exit).__slots__}
                ended = type(exit)(**{**known, "step": progress.step if progress else 0})
                spent = self.pages.spent(generation, FIRST) if exit.local_rank == FIRST else None
                return [WorkerExited(generation, ended, spent)]
            case WorkersStopped(generation):
                return [self._read_pages(generation), event]
            case TrainerEnded() | HookDisconnected(alive=False):
                return [self._read_pages(self._generation), event]
            case _:
                return [event]


def start_line(start: Start, volume: str, gpus: tuple[str, ...] = ()) -> Line:
    """The line on agent.sock that orders to start worker processes."""
    ranks = [{"local_rank": rank, "env": environment.of_rank(start, rank, volume)} for rank in range(start.nproc)]
    return {
        "do": "start",
        "generation": _pair(start.generation),
        "ranks": ranks,
        "env": environment.common(start) | environment.gpus(start, gpus),
        "defaults": environment.defaults(start),
        "saves": [[path, at] for path, at in start.saves],
        "prints": [[print_, at] for print_, at in start.prints],
        "patterns": list(start.patterns),
    }


def stop_line(stop: StopWorkers, generation: Generation) -> Line:
    return {
        "do": "stop",
        "generation": _pair(generation),
        "grace": stop.grace,
        "handler_grace": stop.handler_grace,
        "save_grace": stop.save_grace,
    }


def check_line(check: RunCheck) -> Line:
    order = check.order
    return {
        "do": "check",
        "order": order.order,
        "round": order.round,
        "member": check.member,
        "nproc": check.nproc,
        "port": order.port,
        "address": order.address,
        "peers": [{"member": peer.member, "address": peer.address, "port": peer.port} for peer in order.peers],
        "awaited": list(order.awaited),
        "compute": order.compute,
        "alone": order.alone,
        "seconds": order.seconds,
    }


def _pair(generation: Generation) -> list[int]:
    return [generation.term, generation.number]
