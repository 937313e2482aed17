"""Copies of checkpoints from one member's memory into another's: real files and connections, the hooks' own reader."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.sidecar.shell import arena
from outrider.sidecar.shell.checkpoint_transfer import MOST_AT_ONCE, PIECE, Giver, Taking
from outrider.wire.ids import Generation, MemberId, OrderId
from outrider.wire.messages.checkpoints import Copy, Fetch, Fetched, Wanted
from training_hooks.abi import arena as layout

SIZE = 64 << 20
MADE_IN = Generation(1, 2)
PAYLOAD = os.urandom(3 * PIECE + 12345)


def memory(folder: Path, kind: int = layout.REPLICATED, size: int = SIZE) -> Path:
    path = folder / "checkpoints"
    folder.mkdir(exist_ok=True)
    layout.allot(str(path), size)
    if kind:
        with open(path, "r+b") as file:
            layout.divide(file.fileno(), kind, 2)
    return path


def put(path: Path, slot: int, step: int, payload: bytes = PAYLOAD, rank: int = 0) -> None:
    """As a rank writes it."""
    with open(path, "r+b") as file:
        fd = file.fileno()
        divided = layout.division(fd)
        sequence = layout.begin(fd, divided, slot)
        os.pwrite(fd, payload, layout.place(divided, slot) + layout.PAGE)
        made_in = MADE_IN.term << 32 | MADE_IN.number
        sums = (zlib.crc32(payload), 7)
        head = (layout.VERSION, sequence, step, made_in, rank, 4, divided.kind, 1, len(payload), *sums)
        layout.put(fd, divided, slot, head)


def found(path: Path, slot: int) -> tuple[layout.Head, bytes] | None:
    """As a rank reads it."""
    with open(path, "rb") as file:
        divided = layout.division(file.fileno())
        head = layout.head(file.fileno(), divided, slot)
        if head is None or not head.sealed:
            return None
        return head, os.pread(file.fileno(), head.length, layout.place(divided, slot) + layout.PAGE)


def order(wanted: Wanted, step: int, *, sharded: bool = False) -> Fetch:
    return Fetch(OrderId(7), Generation(1, 3), step, MADE_IN, (wanted,), sharded, 20.0)


def taken(source: Path, target: Path, step: int = 40, change: Callable[[Wanted], Wanted] = lambda wanted: wanted,
          at: str = "127.0.0.1", **what: bool) -> Fetched:  # fmt: skip
    async def take() -> Fetched:
        giver = Giver(at, source)
        wanted = Wanted(what.get("rank", 0), 0, MemberId("worker-1"), at, giver.port, giver.key,
                        what.get("held", False))  # fmt: skip
        try:
            asked = order(change(wanted), step, sharded=what.get("sharded", False))
            return await asyncio.to_thread(Taking(target, asked, 2).run)
        finally:
            giver.close()

    return asyncio.run(take())


@pytest.mark.parametrize("at", ["127.0.0.1", "::1"])
def test_a_copy_arrives_as_it_was_and_counts(tmp_path: Path, at: str) -> None:
    source, target = memory(tmp_path / "a"), memory(tmp_path / "b", 0)
    put(source, 1, 40)
    assert taken(source, target, at=at).error == ""
    kept, came = found(source, 1), found(target, 0)
    assert kept is not None
    assert came is not None
    assert came[1] == PAYLOAD
    assert came[0]._replace(sequence=0) == kept[0]._replace(sequence=0)
    assert arena.copies(target) == (Copy(0, 40, False, 4, MADE_IN, len(PAYLOAD)),)
    with open(target, "rb") as file:
        assert layout.kept(file.fileno()) == 40


def test_the_newest_copy_that_is_there_is_not_what_gives_way(tmp_path: Path) -> None:
    source, target = memory(tmp_path / "a"), memory(tmp_path / "b")
    put(source, 0, 40)
    put(target, 0, 60, b"newest")
    put(target, 1, 20, b"oldest")
    assert taken(source, target).error == ""
    assert [copy.step for copy in arena.copies(target)] == [60, 40]


def test_a_partner_holds_the_ranks_of_another_beside_its_own(tmp_path: Path) -> None:
    source, target = memory(tmp_path / "a", layout.SHARDED), memory(tmp_path / "b", layout.SHARDED)
    put(source, 4, 40, rank=3)
    put(target, 0, 40, b"its own", rank=0)
    answer = taken(source, target, sharded=True, held=True, rank=3)
    assert answer.error == ""
    assert [(copy.rank, copy.held) for copy in arena.copies(target)] == [(0, False), (3, True)]
    assert taken(source, target, sharded=True, held=True, rank=2).error.endswith("for rank 2 is no longer in memory")


def test_what_a_partner_has_taken_over_stays_with_its_owner_until_it_is_kept(tmp_path: Path) -> None:
    source, target = memory(tmp_path / "a", layout.SHARDED), memory(tmp_path / "b", layout.SHARDED)
    made_in = MADE_IN.term << 32 | MADE_IN.number
    put(source, 0, 30)
    put(source, 1, 40)
    with open(source, "r+b") as file, arena.opened(source) as memory_of_ours:
        fd, divided = file.fileno(), layout.division(file.fileno())
        memory_of_ours.keep(30)
        assert layout.next_slot(fd, divided, (0, 1)) == 1
        assert taken(source, target, sharded=True, held=True).error == ""
        assert layout.claim(fd, divided, (0, 1), made_in) is None
        memory_of_ours.keep(40)
        assert layout.claim(fd, divided, (0, 1), made_in)[0] == 0


def test_who_does_not_know_the_key_gets_nothing(tmp_path: Path) -> None:
    source, target = memory(tmp_path / "a"), memory(tmp_path / "b")
    put(source, 0, 40)
    error = taken(source, target, change=lambda wanted: replace(wanted, memory_key="guessed")).error
    assert "the other side sent no complete line" in error
    assert found(target, 0) is None


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\n",
        b"[1]\n",
        b"{}\n",
        b"{" * 10_000,
        b"\xff\x00\n",
        b'{"step": {}, "mac": 7}\n',
        b'{"mac": "\\u00e9\\ud800"}\n',
    ],
)
def test_who_says_what_cannot_be_gets_nothing_and_others_are_served_on(tmp_path: Path, junk: bytes) -> None:
    source, target = memory(tmp_path / "a"), memory(tmp_path / "b")
    put(source, 0, 40)

    def after_junk(wanted: Wanted) -> Wanted:
        with socket.create_connection((wanted.address, wanted.port)) as stranger:
            stranger.sendall(junk)
        return wanted

    assert taken(source, target, change=after_junk).error == ""


def test_a_missing_or_too_large_checkpoint_is_an_error(tmp_path: Path) -> None:
    source, small = memory(tmp_path / "a"), memory(tmp_path / "b", 0, 1 << 20)
    put(source, 0, 40)
    assert "the checkpoint of step 41 for rank 0 is no longer in memory" in taken(source, small, 41).error
    assert "does not fit into" in taken(source, small).error
    assert "this member has no memory for checkpoints" in taken(source, tmp_path / "none").error


def test_a_copy_that_its_rank_writes_over_meanwhile_does_not_count(tmp_path: Path) -> None:
    source, target = memory(tmp_path / "a"), memory(tmp_path / "b")
    put(source, 0, 40, os.urandom(24 << 20))

    def overwritten(wanted: Wanted) -> Wanted:
        proxy = socket.create_server(("127.0.0.1", 0))

        def pass_on() -> None:
            with proxy, proxy.accept()[0] as taker, socket.create_connection((wanted.address, wanted.port)) as giver:
                taker.sendall(giver.recv(32))
                giver.sendall(taker.recv(4096))
                first = giver.recv(PIECE)
                put(source, 0, 60, b"the next save")  # more than the sockets hold is still to come
                while first:
                    taker.sendall(first)
                    first = giver.recv(PIECE)

        threading.Thread(target=pass_on, daemon=True).start()
        return replace(wanted, port=proxy.getsockname()[1])

    assert "has started to overwrite the checkpoint" in taken(source, target, change=overwritten).error
    assert found(target, 0) is None


def test_what_was_changed_on_the_way_does_not_count_whatever_its_checksums_say(tmp_path: Path) -> None:
    """The middle sees nonces, head and all checksums in clear, and can make those of its own payload; not the seal."""
    source, target = memory(tmp_path / "a"), memory(tmp_path / "b")
    put(source, 0, 40)

    def changed(wanted: Wanted) -> Wanted:
        proxy = socket.create_server(("127.0.0.1", 0))

        def pass_on() -> None:
            with proxy, proxy.accept()[0] as taker, socket.create_connection((wanted.address, wanted.port)) as giver:
                taker.sendall(giver.recv(32))
                giver.sendall(taker.recv(4096))
                said = b""
                while piece := giver.recv(PIECE):
                    said += piece
                at = said.index(b"\n") + 1 + len(PAYLOAD) // 2
                taker.sendall(said[:at] + bytes([said[at] ^ 1]) + said[at + 1 :])

        threading.Thread(target=pass_on, daemon=True).start()
        return replace(wanted, port=proxy.getsockname()[1])

    assert "the data was changed on the way" in taken(source, target, change=changed).error
    assert found(target, 0) is None
    assert arena.copies(target) == ()


def test_a_client_that_never_sends_a_whole_line_takes_no_slot(tmp_path: Path) -> None:
    source, target = memory(tmp_path / "a"), memory(tmp_path / "b")
    put(source, 0, 40)
    silent: list[socket.socket] = []

    def crowded(wanted: Wanted) -> Wanted:
        for _ in range(2 * MOST_AT_ONCE):
            silent.append(socket.create_connection((wanted.address, wanted.port)))
            silent[-1].sendall(b"{")
        return wanted

    try:
        assert taken(source, target, change=crowded).error == ""
        assert len(silent[-1].recv(32)) == 32, "all of them were listened to"
    finally:
        for each in silent:
            each.close()


def test_after_a_stop_nothing_is_written(tmp_path: Path) -> None:
    source, target = memory(tmp_path / "a"), memory(tmp_path / "b")
    put(source, 0, 40)

    async def stopped() -> Fetched:
        giver = Giver("127.0.0.1", source)
        wanted = Wanted(0, 0, MemberId("worker-1"), "127.0.0.1", giver.port, giver.key)
        taking = Taking(target, order(wanted, 40), 2)
        taking.stop()
        try:
            return await asyncio.to_thread(taking.run)
        finally:
            giver.close()

    assert "the transfer was cancelled" in asyncio.run(stopped()).error
    assert found(target, 0) is None


def test_a_damaged_head_is_no_copy_and_a_foreign_memory_says_why(tmp_path: Path) -> None:
    path = memory(tmp_path / "a", layout.SHARDED)
    put(path, 4, 40, rank=3)
    with arena.opened(path) as memory_of_ours:
        os.pwrite(memory_of_ours.fd, b"?", layout.place(memory_of_ours.division(), 4) + 20)
        assert arena.copies(path) == ()
        os.pwrite(memory_of_ours.fd, b"ELSE", 0)
        with pytest.raises(layout.Unusable, match="something else"):
            memory_of_ours.division()
