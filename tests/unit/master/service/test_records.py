"""What outlives a master on disk: status, events, term."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.master.local.lease import Lease, LeaseHeld
from outrider.master.service.status_files import Records
from tests.waiting import DEADLINE


def add(records: Records, reason: str) -> None:
    records.add("Something", reason, "normal", None, "1.1", {"a": "b"})


@contextlib.contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """As on a full disk: a write takes what still fits, and the next one is refused."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_events_count_on_over_a_new_master_and_a_half_written_line_is_passed_over(tmp_path: Path) -> None:
    first = Records(tmp_path)
    add(first, "one")
    add(first, "two")
    first.close()
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"seq": 3, "kind": "Cut')
    second = Records(tmp_path)
    add(second, "three")
    second.close()
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (last["seq"], last["reason"], last["detail"]) == (3, "three", {"a": "b"})
    assert [line["reason"] for line in second.after(1)] == ["two", "three"]


async def test_a_follower_gets_what_was_and_what_comes_and_ends_with_the_records(tmp_path: Path) -> None:
    records = Records(tmp_path)
    add(records, "before")
    heard: list[str] = []

    async def follow() -> None:
        async for line in records.follow(0):
            heard.append(line["reason"])
            if len(heard) == 1:
                add(records, "after")
            elif len(heard) == 2:
                records.close()

    await asyncio.wait_for(follow(), DEADLINE)
    assert heard == ["before", "after"]


async def test_events_on_a_full_disk_reach_followers_and_are_written_when_there_is_room(tmp_path: Path) -> None:
    records = Records(tmp_path)
    add(records, "one")
    with no_file_beyond((tmp_path / "events.jsonl").stat().st_size + 20):
        told = records.follow(1)
        heard = asyncio.ensure_future(anext(told))
        await asyncio.sleep(0)
        add(records, "two")
        assert (await asyncio.wait_for(heard, DEADLINE))["reason"] == "two"
        add(records, "three")
    add(records, "four")
    records.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["one", "two", "three", "four"]


@pytest.mark.parametrize("left", [b"", b"{", b"[1]", b"\xff\xfe"])
async def test_a_status_that_cannot_be_read_is_none(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "status.json").write_bytes(left)
    records = Records(tmp_path)
    assert records.saved_status() is None
    records.save_status({"phase": "running"})
    assert records.saved_status() == {"phase": "running"}
    records.close()


def test_the_lease_has_one_holder_and_its_term_grows_with_each(tmp_path: Path) -> None:
    first = Lease(tmp_path)
    with pytest.raises(LeaseHeld, match="another master of this job is running"):
        Lease(tmp_path)
    first.release()
    second = Lease(tmp_path)
    assert (first.term, second.term) == (1, 2)
    second.release()


def test_an_unreadable_term_counts_as_zero(tmp_path: Path) -> None:
    (tmp_path / "term").write_text("nonsense")
    lease = Lease(tmp_path)
    assert lease.term == 1
    lease.release()
