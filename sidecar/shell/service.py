"""Assembles a sidecar: settings, links, the pump around the core, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from outrider.runtime import logs
from outrider.runtime.journal import Journal
from outrider.runtime.lifeline import watch_lifeline
from outrider.runtime.pump import CORE_FAILED, Core, Pump
from outrider.runtime.settings import Environment, WrongSetting
from outrider.runtime.unix import SocketPathTooLong
from outrider.sidecar.core import invariants
from outrider.sidecar.core import step as core_step
from outrider.sidecar.core.actions import Action
from outrider.sidecar.core.events import (
    ActionFailed,
    Began,
    Event,
    HookConnected,
    LifelineLost,
    NeighbourLeft,
    SigtermReceived,
    Stalled,
    TrainerEnded,
    Woke,
)
from outrider.sidecar.core.state import State
from outrider.sidecar.shell import alone_word
from outrider.sidecar.shell import settings as settings_of
from outrider.sidecar.shell.ask_socket import Askers
from outrider.sidecar.shell.checkpoints import Checkpoints
from outrider.sidecar.shell.effects import SidecarEffects
from outrider.sidecar.shell.hooks_link import HooksLink
from outrider.sidecar.shell.master_link import MasterLink
from outrider.sidecar.shell.peer_probes import Probes
from outrider.sidecar.shell.progress_pages import PageReader
from outrider.sidecar.shell.resource_usage import UsageSampler
from outrider.sidecar.shell.settings import Settings
from outrider.sidecar.shell.step_windows import WindowReader
from outrider.sidecar.shell.trainers import Trainers

if TYPE_CHECKING:
    from outrider.runtime.http import HttpServer

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""The kernel's boot id, the same in all containers on that kernel, whatever their nodes are called."""
WRONG_SETTING = 2
"""Exit code for an invalid setting in the environment, which a restart would not fix."""
JOURNAL_BYTES = 4 << 20
"""Most bytes of the journal's file, which shares the pod's 16 MiB with hooks, pages and sockets."""
OVER = "sidecar-is-over"
"""File with the exit code of a sidecar that ended on purpose, so that `outrider-sidecar` does not restart it."""

log = logging.getLogger("sidecar")

CORE: Core[State, Event, Action] = Core(
    step=core_step.step,
    next_deadline=core_step.next_deadline,
    woke=Woke,
    stalled=Stalled,
    failed=ActionFailed,
    describe=core_step.describe,
    check=invariants.check,
)


def main() -> int:
    """Runs one sidecar to its end and returns its exit code."""
    try:
        settings = settings_of.read(Environment())
    except WrongSetting as error:
        print(f"outrider sidecar: {error}", file=sys.stderr)
        return WRONG_SETTING
    logs.set_up(settings.log, f"sidecar {settings.member}")
    try:
        code = uvloop.run(serve(settings))
    except SocketPathTooLong as error:
        log.error("%s", error)
        return WRONG_SETTING
    return code


async def serve(settings: Settings) -> int:
    state = State()
    pump = Pump(CORE, state, Journal(settings.folder / "sidecar-journal.txt", longest_file=JOURNAL_BYTES))

    def trainer_ended(pid: int) -> None:
        for event in effects.enrich(TrainerEnded(pid)):
            pump.put(event)

    trainers = Trainers(settings.uid, trainer_ended)

    def put(event: Event) -> None:
        pump.put(event)
        if isinstance(event, HookConnected):
            trainers.watch(event.pid)

    hooks = HooksLink(settings.folder, settings.grace, put, lambda event: effects.enrich(event))
    askers = Askers(settings.folder, put)
    probes = await Probes.open(
        settings.address, settings.folder / "probe-port", lambda address, port: put(NeighbourLeft(address, port))
    )
    checkpoints = Checkpoints(settings.address, settings.folder)
    pump.put(_began(settings, probes.port, hooks.found_a_socket, checkpoints))
    master = MasterLink(settings.master, settings.master_key, put)
    pump.drain_before_judging(master.drain)
    effects = SidecarEffects(
        volume=str(settings.folder),
        put=put,
        stop=pump.stop,
        master=master,
        hooks=hooks,
        askers=askers,
        pages=PageReader(settings.folder),
        windows=WindowReader(settings.folder),
        usage=UsageSampler(),
        probes=probes,
        trainers=trainers,
        checkpoints=checkpoints,
        token=settings.token_now,
        gpus=settings.gpus,
    )
    if alone := alone_word.read(settings.folder).trainer:
        trainers.watch(alone)
    _listen_to_the_platform(settings, pump)
    await hooks.listen()
    await askers.listen()
    health = await _serve_health(settings, pump)
    try:
        code = await pump.run(effects)
        if not state.alone.is_final:  # otherwise the trainer's container may be restarted, and needs a sidecar again
            _note_end(settings.folder, code)
        return code
    finally:
        if health is not None:
            await health.stop()
        hooks.close()
        askers.close()
        probes.close()
        checkpoints.close()
        trainers.close()
        master.close()


def _note_end(folder: Path, code: int) -> None:
    """Writes the exit code for `outrider-sidecar` while SIGTERM is still handled: a later SIGTERM may end this process
    with 143, but the container's exit code is the written one."""
    if code != CORE_FAILED:
        with contextlib.suppress(OSError):
            (folder / OVER).write_text(f"{code}\n")


def _began(settings: Settings, probe_port: int, restarted: bool, checkpoints: Checkpoints) -> Began:
    decided = alone_word.read(settings.folder)
    return Began(
        job=settings.job,
        member=settings.member,
        uid=settings.uid,
        role=settings.role,
        rank_index=settings.rank_index,
        token=settings.token,
        address=settings.address,
        probe_port=probe_port,
        nproc=settings.nproc,
        sidecar_pid=os.getpid(),
        restarted=restarted,
        ends_as_trainer=settings.ends_as_trainer,
        machine=_machine(),
        memory_port=checkpoints.port,
        memory_key=checkpoints.key,
        is_native=settings.is_native,
        alone_after=settings.alone_after,
        done_after=settings.done_after,
        endpoint=settings.master,
        word=decided.word,
        alone_trainer=decided.trainer,
    )


def _machine() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _listen_to_the_platform(settings: Settings, pump: Pump[State, Event, Action]) -> None:
    """Passes SIGTERM to the core, and ignores SIGINT: Ctrl-C is handled by the command that owns the job."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: pump.put(SigtermReceived(settings.grace)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if settings.lifeline is not None:
        watch_lifeline(settings.lifeline, lambda: pump.put(LifelineLost()))


async def _serve_health(settings: Settings, pump: Pump[State, Event, Action]) -> HttpServer | None:
    if settings.http_port is None:
        return None
    from outrider.sidecar.shell.health import start  # imported only if needed: aiohttp takes 10 MB

    return await start(settings.http_port, pump)
