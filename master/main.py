"""Assembles a master: the lease, the platform, the sidecars' socket, the API, the pump around the core."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time

import uvloop
import zmq

from outrider.master.core.actions import Action
from outrider.master.core.events import Began, Event, StopAsked
from outrider.master.core.job_kinds import Job, new
from outrider.master.local.client import LocalPlatform
from outrider.master.local.lease import Lease, LeaseHeld
from outrider.master.local.progress_file import Progress
from outrider.master.recording import recorder
from outrider.master.service import settings as settings_of
from outrider.master.service.core_driver import CORE
from outrider.master.service.effects import MasterEffects
from outrider.master.service.exit_codes import ADDRESS_TAKEN, ENDED, LEASE_HELD, WRONG_SETTING
from outrider.master.service.http import Api
from outrider.master.service.refused_connections import RefusalLog
from outrider.master.service.settings import Settings
from outrider.master.service.sidecars import Sidecars, TokenDoor
from outrider.master.service.status_files import Records
from outrider.master.service.telemetry.connecting import connected
from outrider.master.service.telemetry.job import Telemetry
from outrider.runtime import logs
from outrider.runtime.http import HttpServer
from outrider.runtime.journal import Journal
from outrider.runtime.lifeline import watch_lifeline
from outrider.runtime.processes import sweep
from outrider.runtime.pump import Pump
from outrider.runtime.settings import Environment, WrongSetting
from outrider.runtime.unix import SocketPathTooLong

log = logging.getLogger("master")


def main() -> int:
    """Runs one master to its end and returns its exit code."""
    environment = Environment()
    try:
        if settings_of.platform_of(environment) == "kubernetes":
            from outrider.master.kubernetes.service import main as serve_cluster  # needs the kubernetes extra

            return serve_cluster(environment)
        settings = settings_of.read(environment)
    except WrongSetting as error:
        print(f"outrider master: {error}", file=sys.stderr)
        return WRONG_SETTING
    logs.set_up(settings.log, "master")
    try:
        lease = Lease(settings.folder)
        with connected(os.environ) as telemetry:
            return uvloop.run(serve(settings, lease.term, telemetry))
    except LeaseHeld as error:
        log.error("%s", error)
        return LEASE_HELD
    except SocketPathTooLong as error:
        log.error("%s", error)
        return WRONG_SETTING
    except zmq.ZMQError as error:
        log.error("binding OUTRIDER_BIND=%s failed: %s", settings.bind, error)
        return ADDRESS_TAKEN


async def serve(settings: Settings, term: int, telemetry: Telemetry | None = None) -> int:
    journal = Journal(settings.folder / "journal.txt")
    pump = Pump(CORE, new(settings.spec), journal)
    records = Records(settings.folder)
    progress = Progress(settings.folder, lambda: pump.state)
    door = TokenDoor(settings.job, settings.token, pump.put)
    sidecars = Sidecars(settings.keys, door, RefusalLog())
    platform = LocalPlatform(settings.node_socket, pump.put)
    effects = MasterEffects(pump.put, pump.stop, sidecars, platform, records)
    effects.telemetry = telemetry.of_job(lambda: pump.state) if telemetry is not None else None
    pump.put(Began(term, settings.spec, records.saved_status(), time.time()))
    pump.drain_before_judging(sidecars.drain)
    _listen_to_the_platform(settings, pump)
    api = HttpServer(Api(pump.state, time.monotonic, pump.put, records, effects.askers, journal).application())
    watching: list[asyncio.Future[None]] = []
    try:
        sidecars.bind(settings.bind)
        await api.start_on_socket(settings.folder / "master.sock")
        watching = [asyncio.ensure_future(each) for each in (platform.watch(), progress.watch())]
        return await pump.run(effects)
    finally:
        journal.write()
        recorder.save(journal, settings.folder / (recorder.FAILED if pump.failure else recorder.FILE))
        records.close()
        await api.stop()
        for each in watching:
            each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await each
        progress.close()
        sidecars.close()


def _listen_to_the_platform(settings: Settings, pump: Pump[Job, Event, Action]) -> None:
    """Ends the job in order on SIGTERM, and ignores SIGINT: Ctrl-C is handled by the command that owns the job."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: pump.put(StopAsked("The master received SIGTERM.")))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if settings.lifeline is not None:
        watch_lifeline(settings.lifeline, lambda: _sweep_job(settings, pump))


def _sweep_job(settings: Settings, pump: Pump[Job, Event, Action]) -> None:
    """Kills all processes of the job, responsive or not, as the command that owns the job is gone."""
    log.warning("the command that runs the job is gone: killing all processes of the job")
    killed = sweep("OUTRIDER_JOB_UID", settings.job_uid) if settings.job_uid else []
    log.warning("killed %d processes of the job", len(killed))
    pump.stop(ENDED)
