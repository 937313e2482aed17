"""A real sidecar process: what the hooks say comes to the master, what the master orders comes to the hooks."""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path

from outrider.sidecar.shell.service import OVER
from outrider.wire.ids import Generation, OrderId
from outrider.wire.messages.checkpoints import Saved
from outrider.wire.messages.diagnostics import Answer, Ask
from outrider.wire.messages.generation import Acknowledged, Exited, Ready, Started, StartFailed, Stepped, Stop, Stopped
from outrider.wire.messages.links import Probe, Probed
from outrider.wire.messages.membership import Finish, Hello, Leaving, TrainerExited
from outrider.wire.messages.report import Report
from tests.integration.sidecar.bench import member, start_order, template

FIRST, SECOND = Generation(1, 1), Generation(1, 2)


def write_page(folder: Path, local_rank: int, generation: Generation, step: int) -> None:
    now = time.monotonic_ns()
    (folder / "progress").mkdir(exist_ok=True)
    fields = (b"OTRP", 1, 2, generation.term, generation.number, 99, step, 0, now, now - 10**7, 0, 1, 1, now, 0, 0, now)
    page = struct.pack("<4sIQQQQQQQQQIIQQQQ", *fields)
    (folder / "progress" / str(local_rank)).write_bytes(page.ljust(4096, b"\0"))


async def test_a_generation_is_started_watched_stopped_and_the_next_is_offered_another_port() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        assert (await hook.hears("outrider"))["outrider"] == 1
        hello = await master.hears(Hello)
        assert (hello.member, hello.token, hello.running) == ("worker-0", "secret", Generation(0, 0))
        ready = await master.hears(Ready)
        assert (ready.nproc, ready.rung, ready.trainer_pid) == (2, "T0", os.getpid())

        master.send(start_order(1, FIRST, ready.port))
        order = await hook.hears("do")
        assert (order["do"], order["generation"]) == ("start", [1, 1])
        environment = {**order["env"], **order["ranks"][1]["env"]}
        assert environment["RANK"] == environment["LOCAL_RANK"] == "1"
        assert environment["MASTER_PORT"] == str(ready.port)
        assert environment["TORCHELASTIC_RESTART_COUNT"] == "0"
        hook.say({"event": "started", "generation": [1, 1], "pids": [101, 102]})
        assert (await master.hears(Started)).pids == (101, 102)

        for rank in (0, 1):
            write_page(sidecar.folder, rank, FIRST, step=7)
        assert (await master.hears(Stepped)).step == 7
        report = await master.hears(Report, lambda each: each.step == 7)
        assert (report.state, report.generation, report.sidecar_pid) == ("running", FIRST, sidecar.pid)

        hook.say({"event": "exited", "generation": [1, 1], "local_rank": 1, "pid": 102, "code": None, "signal": 9})
        exited = await master.hears(Exited)
        assert (exited.exits[0].signal, exited.exits[0].step, exited.alive) == (9, 7, 1)

        master.send(Stop(OrderId(2), FIRST))
        assert (await hook.hears("do"))["do"] == "stop"
        hook.say({"event": "stopped", "generation": [1, 1], "killed": 1})
        stopped = await master.hears(Stopped)
        assert (stopped.order, stopped.step, stopped.killed) == (2, 7, 1)
        again = await master.hears(Ready)
        assert again.after == FIRST
        assert again.port != ready.port


async def test_a_start_of_a_generation_that_was_stopped_is_refused_with_a_sentence() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        master.send(Stop(OrderId(1), SECOND))
        await master.hears(Stopped)
        master.send(start_order(2, FIRST))
        refused = await master.hears(StartFailed)
        assert "older than 1.2" in refused.error


async def test_a_sidecar_that_was_killed_reattaches_to_what_runs() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        master.send(start_order(1, FIRST))
        await hook.hears("do")
        hook.say({"event": "started", "generation": [1, 1], "pids": [101, 102]})
        await master.hears(Started)
        await sidecar.kill()
        await master.loses_the_link()
        await sidecar.start()
        again = await sidecar.hook()
        again.say(template(running=[1, 1], workers=[[0, 101], [1, 102]]))
        hello = await master.hears(Hello, lambda each: True)
        assert hello.running == FIRST
        report = await master.hears(Report)
        assert (report.state, report.pids) == ("running", (101, 102))
        master.send(Stop(OrderId(2), FIRST))
        assert (await again.hears("do"))["do"] == "stop"
        again.say({"event": "stopped", "generation": [1, 1], "killed": 0})
        assert (await master.hears(Ready)).after == FIRST


async def test_after_finish_the_trainer_gets_its_order_and_then_the_sidecar_ends() -> None:
    async with member() as (master, sidecar):
        await sidecar.obedient_trainer()
        await master.hears(Ready)
        master.send(Finish(OrderId(5), 0, "the job succeeded"))
        assert (await master.hears(Acknowledged)).order == 5
        code, log = await sidecar.ends()
        assert code == 0
        assert "the job succeeded" in log
        assert (sidecar.folder / OVER).exists()


async def test_a_checkpoint_a_command_s_end_and_a_termination_are_passed_on() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        hook.say({"event": "saved", "generation": [1, 1], "local_rank": 0, "path": "/c.pt", "step": 12})
        assert (await master.hears(Saved)).path == "/c.pt"
        hook.say({"event": "terminating", "reason": "SIGTERM"})
        assert (await master.hears(Leaving)).grace > 20
        hook.say({"event": "command_ended", "code": 3, "reason": "the command ended"})
        assert (await master.hears(TrainerExited)).code == 3


async def test_stacks_are_requested_from_the_hooks_and_answered_even_without_hooks() -> None:
    async with member() as (master, sidecar):
        await master.hears(Hello)
        master.send(Ask(OrderId(1), "stacks"))
        assert "error" in (await master.hears(Answer)).body
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        master.send(Ask(OrderId(2), "stacks"))
        assert (await hook.hears("do"))["what"] == "stacks"
        hook.say({"event": "collected", "order": 2, "body": {"0": "train.py:3"}})
        assert (await master.hears(Answer)).body == '{"0": "train.py:3"}'


async def test_a_member_says_whether_it_reaches_another() -> None:
    async with member() as (master, sidecar):
        hello = await master.hears(Hello)
        master.send(Probe(OrderId(1), hello.member, "127.0.0.1", hello.probe_port))
        assert (await master.hears(Probed)).reachable
        os.kill(sidecar.pid, 0)
        master.send(Probe(OrderId(2), hello.member, "127.0.0.1", 9, seconds=0.1))
        assert not (await master.hears(Probed)).reachable


async def test_sigterm_is_a_departure_for_an_ordinary_sidecar() -> None:
    async with member() as (master, sidecar):
        await master.hears(Hello)
        os.kill(sidecar.pid, signal.SIGTERM)
        assert (await master.hears(Leaving)).reason == "SIGTERM"


async def test_sigterm_is_the_end_of_a_native_sidecar_and_nothing_more() -> None:
    async with member(OUTRIDER_SIDECAR="native") as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        os.kill(sidecar.pid, signal.SIGTERM)
        code, log = await sidecar.ends()
        assert (code, (sidecar.folder / OVER).read_text()) == (0, "0\n")
        assert "Leaving" not in log
