"""What strangers, newer versions and broken environments send: a clear sentence, and the member continues as before."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from outrider.runtime.settings import Environment, WrongSetting
from outrider.sidecar.shell.settings import read
from outrider.wire.ids import Generation
from outrider.wire.messages.generation import Exited, Ready, Started
from outrider.wire.messages.membership import Hello, Refused
from tests.integration.sidecar.bench import Master, Member, member, start_order, template

FIRST = Generation(1, 1)


async def still_serves(master: Master, sidecar: Member) -> None:
    """A template that behaves is welcomed, started and heard."""
    hook = await sidecar.hook()
    hook.say(template())
    await master.hears(Ready)
    master.send(start_order(1, FIRST))
    assert (await hook.hears("do"))["do"] == "start"
    hook.say({"event": "started", "generation": [1, 1], "pids": [101, 102]})
    await master.hears(Started)


ANNOUNCEMENTS: tuple[tuple[dict[str, object], str], ...] = (
    (template(pid=1), "announced pid 1"),
    (template(outrider=2), "the hooks speak version 2"),
    (template(what="intruder"), "what: Invalid value: 'intruder': must be template or launcher"),
    (template(pid="7"), "pid: Invalid value: '7': must be a whole number"),
    (template(nproc=0), "nproc: Invalid value: 0: must be a whole number from 1 to 1024"),
    (template(running=[1]), "running: Invalid value: an array: must be a generation: [term, number]"),
    (template(workers=[[0]]), "workers[0]: Invalid value: an array: must be an array of 2"),
    (template(can_start="yes"), "can_start: Invalid value: 'yes': must be true or false"),
    ({}, "outrider: Required value: must be a whole number"),
)


async def test_an_announcement_that_cannot_be_is_refused_by_name() -> None:
    async with member() as (master, sidecar):
        for announced, refusal in ANNOUNCEMENTS:
            hook = await sidecar.hook()
            hook.say(announced)
            assert refusal in await hook.is_closed_with()
        await still_serves(master, sidecar)


NO_LINES = {
    "random": os.urandom(3000) + b"\n",
    "a list": b"[1, 2, 3]\n",
    "deep": b"[" * 100_000 + b"\n",
    "cut off": b'{"outrider": 1, "what": "temp\n',
    "a huge line": b"x" * (1 << 20) + b"x\n",
    "no end of line": b"x" * (3 << 20),
    "not a number": b'{"outrider": NaN}\n',
}


async def test_bytes_that_are_no_line_close_their_connection_and_no_other() -> None:
    async with member() as (master, sidecar):
        good = await sidecar.hook()
        good.say(template())
        ready = await master.hears(Ready)
        for data in NO_LINES.values():
            bad = await sidecar.hook()
            bad.say_bytes(data)
            await bad.is_closed_with()
        master.send(start_order(1, FIRST, ready.port))
        assert (await good.hears("do"))["do"] == "start"


async def test_a_line_that_makes_no_sense_closes_the_template_s_connection_and_it_may_come_again() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        hook.say({"event": "exited", "generation": "first", "local_rank": 0, "pid": 1})
        assert "generation: Invalid value: 'first': must be a generation: [term, number]" in await hook.is_closed_with()
        again = await sidecar.hook()
        again.say(template())
        await again.hears("outrider")
        master.send(start_order(1, FIRST))
        assert (await again.hears("do"))["do"] == "start"


NO_DATA: tuple[tuple[dict[str, object], str], ...] = (
    ({"rank": -1}, "rank: Invalid value: -1: must be a whole number from 0"),
    ({"warning": "no"}, "warning: Invalid value: 'no': must be true or false"),
    ({"detail": [1]}, "detail: Invalid value: an array: must be a map"),
    ({"detail": {"samples": "many"}}, "detail.samples: Invalid value: 'many': must be a whole number"),
    ({"generation": None}, "generation: Invalid value: None: must be a generation: [term, number]"),
)


async def test_what_a_rank_tells_of_its_data_must_be_of_the_kind_it_is() -> None:
    line = {"event": "data", "generation": [1, 1], "rank": 0, "local_rank": 0, "sentence": "epoch 0 starts over"}
    async with member() as (_master, sidecar):
        for change, said in NO_DATA:
            hook = await sidecar.hook()
            hook.say(template())
            await hook.hears("outrider")
            hook.say(line | {"word": "a newer one"})
            hook.say(line | {"word": "repeated", "detail": {"samples": 72}} | change)
            assert said in await hook.is_closed_with()


@pytest.mark.parametrize("at", [10**400, -1, 1e300, "yesterday"])
async def test_an_end_at_a_moment_that_cannot_be_was_now(at: object) -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        master.send(start_order(1, FIRST))
        await hook.hears("do")
        hook.say({"event": "started", "generation": [1, 1], "pids": [101]})
        hook.say({"event": "exited", "generation": [1, 1], "local_rank": 0, "pid": 101, "code": 1, "at": at})
        assert (await master.hears(Exited)).exits[0].age < 60


async def test_a_word_of_newer_hooks_is_passed_over() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template(colour="green"))
        await master.hears(Ready)
        hook.say({"event": "sang", "song": [1, 2]})
        master.send(start_order(1, FIRST))
        assert (await hook.hears("do"))["do"] == "start"


async def test_a_second_template_gets_the_reason_of_its_refusal() -> None:
    async with member() as (master, sidecar):
        first = await sidecar.hook()
        first.say(template())
        await master.hears(Ready)
        announce = f"""
import json, os, socket
s = socket.socket(socket.AF_UNIX); s.connect({str(sidecar.folder / "agent.sock")!r})
line = {template()!r}; line["pid"] = os.getpid()
s.sendall(json.dumps(line).encode() + b"\\n")
print("".join(iter(lambda: s.recv(4096).decode(), "")))
"""
        second = await sidecar.run(sys.executable, "-c", announce)
        assert "a container has one trainer" in second
        master.send(start_order(1, FIRST))
        assert (await first.hears("do"))["do"] == "start"


async def test_bytes_of_a_master_that_are_no_message_are_dropped() -> None:
    async with member() as (master, sidecar):
        await master.hears(Hello)
        for payload in (b"", os.urandom(500), b"\x81\xa7message\xa4Boom", b"\xdf\xff\xff\xff\xff"):
            master.send_bytes(payload)
        await still_serves(master, sidecar)


async def test_a_refused_sidecar_logs_the_sentence_and_ends_where_it_must() -> None:
    refusal = Refused("another member says that it is worker-0: stop one of them", retry_after=-1.0)
    async with member(refusal) as (_master, sidecar):
        await sidecar.obedient_trainer()
        code, log = await sidecar.ends()
        assert code == 0
        assert "another member says that it is worker-0" in log


async def test_a_socket_path_that_does_not_fit_stops_the_start_with_its_length(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    assert len(str(folder / "agent.sock")) > 107
    master = Master()
    sidecar = Member(folder, master)
    await sidecar.start()
    code, log = await sidecar.ends()
    master.close()
    assert code == 2
    assert "107" in log
    assert "agent.sock" in log


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("OUTRIDER_JOB", "", "OUTRIDER_JOB is not set"),
        ("OUTRIDER_DIR", "/nowhere/at/all", "OUTRIDER_DIR='/nowhere/at/all': must be a folder that exists"),
        ("OUTRIDER_NPROC", "many", "OUTRIDER_NPROC='many': must be a whole number from 1 to 1024"),
        ("OUTRIDER_NPROC", "0", "OUTRIDER_NPROC='0': must be a whole number from 1 to 1024"),
        ("OUTRIDER_MASTER", "localhost:80", "OUTRIDER_MASTER='localhost:80': must be tcp://host:port"),
        ("OUTRIDER_MASTER_KEY", "short", "must be a CURVE public key of 40 characters"),
        ("OUTRIDER_TOKEN_FILE", "/nowhere", "OUTRIDER_TOKEN_FILE='/nowhere': must be a file that can be read"),
        ("OUTRIDER_LOG", "loud", "OUTRIDER_LOG='loud': must be json or text"),
        ("OUTRIDER_RANK_INDEX", "-1", "OUTRIDER_RANK_INDEX='-1': must be a whole number"),
        ("OUTRIDER_GRACE", "nan", "OUTRIDER_GRACE='nan': must be seconds"),
    ],
)
async def test_a_wrong_setting_is_named(name: str, value: str, sentence: str, tmp_path: Path) -> None:
    master = Master()
    sidecar = Member(tmp_path, master, **{name: value})
    master.close()
    with pytest.raises(WrongSetting, match=re.escape(sentence)):
        read(Environment(sidecar.environment))


async def test_a_wrong_setting_stops_the_start() -> None:
    async with member(OUTRIDER_JOB="") as (_master, sidecar):
        code, log = await sidecar.ends()
        assert code == 2
        assert "OUTRIDER_JOB is not set" in log
        assert "Traceback" not in log


async def test_losing_the_lifeline_ends_the_sidecar_and_all_that_carries_its_mark() -> None:
    async with member() as (master, sidecar):
        await master.hears(Hello)
        await sidecar.kill()
        read_end, write_end = os.pipe()
        sidecar.environment["OUTRIDER_LIFELINE_FD"] = str(read_end)
        await sidecar.start(read_end)
        os.close(read_end)
        marked = await sidecar.spawn_marked(sys.executable, "-c", "import time; time.sleep(600)")
        await master.hears(Hello)
        os.close(write_end)
        code, log = await sidecar.ends()
        assert code == 0
        assert "the command that owns this job is gone" in log
        assert await marked.wait() == -9
