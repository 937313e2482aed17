"""Errors of settings, lines of the journal, socket paths, and processes that are found by their marks."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from outrider.runtime import logs
from outrider.runtime.journal import Journal, Shelf, line, text
from outrider.runtime.lifeline import watch_lifeline
from outrider.runtime.lines import LineConnection
from outrider.runtime.processes import is_alive, marked, send_signal, sweep
from outrider.runtime.settings import Environment, WrongSetting
from outrider.runtime.unix import SocketPathTooLong, checked_path, listening_socket, peer_of
from outrider.wire.ids import Generation
from outrider.wire.messages.membership import Welcome
from tests.waiting import DEADLINE

MARK = "OUTRIDER_TEST_MARK"


@dataclass(frozen=True)
class Happened:
    generation: Generation
    token: str
    count: int = 0
    note: str = ""


def test_a_journal_line_is_one_line_shows_what_is_not_default_and_keeps_secrets() -> None:
    shown = text(Happened(Generation(1, 2), "secret", note="two\nlines"))
    assert shown == r"Happened generation=1.2 token=… note='two\nlines'"
    assert line(12.3456, ">", "x") == "      12.346 > x"


def kept(shelf: Shelf, events: int) -> Journal:
    """Of a state that is the number of its last event."""
    journal, state = Journal(shelf=shelf), [-1]
    journal.follow(lambda: state[0])
    for count in range(events):
        journal.event(float(count), Happened(Generation(1, 1), "", count, secrets.token_hex(50)))
        state[0] = count
    return journal


def test_a_journal_begins_with_the_state_and_has_every_event_since() -> None:
    assert (kept(Shelf(), 3).begins_with(), len(kept(Shelf(), 3).events())) == (-1, 3)
    journal = kept(Shelf(each=20_000), 5000)
    first = journal.begins_with()
    assert first > 1000
    assert [event.count for _, event in journal.events()] == list(range(first + 1, 5000))
    assert len(journal.story("count=4999 ")) == 1


def test_journals_are_bounded_by_bytes_each_and_all_together() -> None:
    shelf = Shelf(each=40_000, together=60_000)
    one = kept(shelf, 5000)
    assert 20_000 < one.size < 44_000
    rest = [kept(shelf, 5000) for _ in range(3)]
    one.event(5000.0, Happened(Generation(1, 1), ""))
    for count in range(200):
        one.event(5001.0 + count, Happened(Generation(1, 1), "", count, secrets.token_hex(50)))
    assert sum(journal.size for journal in (one, *rest)) < 4 * 30_000
    assert shelf.share == 15_000
    del one, rest
    assert shelf.share == 40_000, "journals that are gone take nothing"


def test_the_file_of_a_journal_is_bounded_and_has_the_state_without_secrets(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.txt", longest_file=20_000)
    journal.follow(lambda: Happened(Generation(1, 1), "secret", note="the state"))
    for count in range(1000):
        journal.event(float(count), Happened(Generation(1, 1), "", count, "x" * 50))
    journal.write()
    written = (tmp_path / "journal.txt").read_text()
    assert len(written) < 20_200
    assert "# Happened generation=1.1 token=… note='the state'" in written
    assert "secret" not in written
    assert "count=999 " in written
    assert "older lines are left out" in written


def test_a_ticket_is_a_secret_too() -> None:
    assert "ticket=…" in text(Welcome(1, ticket="an hour's credential"))


def test_a_value_that_cannot_be_packed_is_stored_as_text() -> None:
    journal = Journal()
    journal.follow(lambda: open)
    for _ in range(40):
        journal.event(1.0, lambda: None)
    assert len(journal.story("function")) == 40


def test_a_full_disk_for_the_journal_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / f"journal.txt.{os.getpid()}").symlink_to("/dev/full")
    Journal(tmp_path / "journal.txt").write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["", "x", "-1", "11", "1.5", "0x3"])
def test_a_wrong_number_is_named_with_what_it_must_be(value: str) -> None:
    with pytest.raises(WrongSetting, match=r"OUTRIDER_N.*from 0 to 10"):
        Environment({"OUTRIDER_N": value}).integer("OUTRIDER_N", high=10)


def test_a_setting_that_is_empty_has_its_default() -> None:
    environment = Environment({"A": "", "B": "3"})
    assert environment.integer("A", 7) == 7
    assert environment.optional_integer("A") is None
    assert environment.optional_integer("B") == 3
    assert environment.flag("C", True)
    assert environment.seconds("B") == 3.0


@pytest.mark.parametrize("value", ["[1]", "{", "null"])
def test_a_document_must_be_an_object(value: str) -> None:
    with pytest.raises(WrongSetting, match=r"SPEC.*must be a JSON object"):
        Environment({"SPEC": value}).document("SPEC")


def test_log_lines_carry_the_same_in_both_shapes() -> None:
    shown = {}
    for shape in ("json", "text"):
        stream = io.StringIO()
        logs.set_up(shape, "sidecar", stream)
        logs.announce(logging.getLogger("x"), "WorkerExited", "it ended\nbadly", "warning", {"pid": "7"})
        shown[shape] = stream.getvalue()
    logging.getLogger().handlers.clear()
    entry = json.loads(shown["json"])
    assert (entry["kind"], entry["pid"], entry["level"], entry["service"]) == (
        "WorkerExited",
        "7",
        "warning",
        "sidecar",
    )
    assert "sidecar WorkerExited: it ended" in shown["text"]
    assert "(pid=7)" in shown["text"]


def test_a_socket_path_of_107_bytes_fits_and_of_108_does_not() -> None:
    assert checked_path(Path("/" + "a" * 106))
    with pytest.raises(SocketPathTooLong, match="has 108 bytes, but a unix socket takes 107"):
        checked_path(Path("/" + "a" * 107))
    with pytest.raises(SocketPathTooLong):
        checked_path(Path("/" + "é" * 54))


def test_a_socket_replaces_a_stale_socket_and_never_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listening_socket(path).close()
    again = listening_socket(path, 0o666)
    assert path.stat().st_mode & 0o777 == 0o666
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    assert peer_of(client).pid == os.getpid()
    client.close()
    again.close()
    file = tmp_path / "f"
    file.write_text("mine")
    with pytest.raises(OSError, match=str(file)):
        listening_socket(file)
    assert file.read_text() == "mine"


@pytest.fixture
def mark() -> Iterator[str]:
    value = uuid.uuid4().hex
    yield value
    sweep(MARK, value)


def marked_process(value: str) -> subprocess.Popen[bytes]:
    """A process that is marked and runs: its line says so."""
    script = "print(flush=True); import time; time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, MARK: value}, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def test_a_sweep_kills_marked_processes_and_spares_others(mark: str) -> None:
    ours, spared, stranger = marked_process(mark), marked_process(mark), marked_process(mark + "0")
    assert marked(MARK, mark) == sorted([ours.pid, spared.pid])
    assert sweep(MARK, mark, spare=frozenset({spared.pid})) == [ours.pid]
    assert ours.wait() == -9
    assert is_alive(spared.pid)
    assert is_alive(stranger.pid)
    for process in (spared, stranger):
        process.kill()
        process.wait()
    assert not is_alive(ours.pid)


def test_a_signal_goes_to_no_process_without_the_mark_and_never_to_the_caller(mark: str) -> None:
    stranger = marked_process(mark + "0")
    assert not send_signal(stranger.pid, 9, MARK, mark)  # type: ignore[arg-type]
    assert not send_signal(os.getpid(), 9, "PATH", os.environ["PATH"])  # type: ignore[arg-type]
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


async def test_a_lifeline_is_lost_when_the_last_holder_closes_it() -> None:
    read_end, write_end = os.pipe()
    second = os.dup(write_end)
    lost = asyncio.Event()
    watch_lifeline(read_end, lost.set)
    os.write(write_end, b"still here")
    os.close(write_end)
    assert not lost.is_set()
    os.close(second)
    await asyncio.wait_for(lost.wait(), DEADLINE)
    os.close(read_end)


async def test_lines_that_come_in_pieces_are_joined_and_a_cut_off_line_is_reported() -> None:
    loop = asyncio.get_running_loop()
    heard: list[dict[str, object]] = []
    wrong: asyncio.Future[str] = loop.create_future()
    ours, theirs = socket.socketpair()
    await loop.connect_accepted_socket(
        lambda: LineConnection(
            lambda _: None, lambda _, each: heard.append(each), lambda _, why: wrong.set_result(why)
        ),
        ours,
    )
    for piece in (b'{"a"', b': 1}\n{"b": 2}\n{"c', b'": "\xc3', b'\xa9"}\n{"cut'):
        theirs.sendall(piece)
    theirs.close()
    assert await asyncio.wait_for(wrong, DEADLINE) == "the last line was cut off"
    assert heard == [{"a": 1}, {"b": 2}, {"c": "é"}]
