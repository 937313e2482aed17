"""Windows of steps as a sidecar reads them off the progress pages, which the user's processes write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.master.core.state.stragglers import Comparison, Named
from outrider.master.core.stragglers.detector import take
from outrider.sidecar.shell.step_windows import WindowReader
from outrider.wire.codec import decode_from_sidecar, encode
from outrider.wire.ids import Generation, MemberId
from outrider.wire.messages.report import OwnTime, Report
from training_hooks.abi import progress_page
from training_hooks.telemetry import busy_time

OWN = busy_time.Own(
    busy_time.RECORDER_AND_CPU, 8, 60_000_000, 5_000_000, 100_000_000, 77, 4_000_000, 1_000_000, 500_000, 2_000_000
)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "progress").mkdir()
    made = progress_page.Page(str(tmp_path / "progress" / "0"), 1, 3)
    yield made
    made.words.release()
    made.map.close()


def read(folder: Path, reader: WindowReader | None = None, generation: Generation | None = None) -> tuple[OwnTime, ...]:
    return (reader or WindowReader(folder)).read(generation or Generation(1, 3), (0,))


def test_a_window_is_handed_on_once(tmp_path: Path, written: Any) -> None:
    reader = WindowReader(tmp_path)
    assert read(tmp_path, reader) == ()
    written.set_window(128, OWN, 3_000_000)
    expected = OwnTime(0, 128, 8, "recorder and cpu", 0.06, 0.005, 0.1, 77, 0.004, 0.001, 0.0005, 0.002, 0.003)
    assert read(tmp_path, reader) == (expected,)
    assert read(tmp_path, reader) == ()
    written.set_window(256, OWN, 0)
    assert [own.first_step for own in read(tmp_path, reader)] == [256]


def test_a_window_of_another_generation_is_none(tmp_path: Path, written: Any) -> None:
    written.set_window(128, OWN, 0)
    assert read(tmp_path, generation=Generation(1, 4)) == ()


def test_a_new_process_begins_without_one(tmp_path: Path, written: Any) -> None:
    written.set_window(128, OWN, 0)
    again = progress_page.Page(str(tmp_path / "progress" / "0"), 1, 3)
    assert read(tmp_path) == ()
    again.words.release()
    again.map.close()


def test_what_no_message_can_carry_is_no_window(tmp_path: Path, written: Any) -> None:
    written.set_window(128, OWN._replace(source=9), 0)
    assert read(tmp_path) == ()
    written.set_window(1 << 63, OWN, 0)
    assert read(tmp_path) == ()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"step": 0}, "its steps take 0 s"),
        ({"gap": 2**63}, "its gap of 9.22337e+09 s a step is not a valid time"),
        ({"busy": 2**64 - 1_000_000}, "its busy of 1.84467e+10 s a step is not a valid time"),
        ({"waited": 10**14}, "its waited of 100000 s a step is not a valid time"),
        ({"step": 2**64 - 1}, "its step_seconds of 1.84467e+10 s a step is not a valid time"),
        ({"gap": 200_000_000}, "its gap of 0.2 s is longer than its step of 0.1 s"),
    ],
    ids=str,
)
def test_times_that_a_hostile_page_claims_come_to_the_master_which_says_whose_they_are_and_judges_the_others(
    tmp_path: Path, written: Any, bad: dict[str, int], said: str
) -> None:
    """From the bytes of the page, over the wire, to what the status says. A negative time is there an enormous one."""
    comparison, named, reader = Comparison(), list[Named](), WindowReader(tmp_path)
    for number in range(1, 9):
        written.set_window(128 * number, OWN._replace(**bad), 0)
        told = decode_from_sidecar(encode(Report(Generation(1, 3), "running", own=read(tmp_path, reader))))
        assert isinstance(told, Report)
        named += take(comparison, MemberId("worker-0"), told.own, 3)
        for member, gap in (("worker-1", 0.02), ("worker-2", 0.05)):
            own = OwnTime(0, 128 * number, 8, "recorder and cpu", gap, 0.01, 0.1)
            named += take(comparison, MemberId(member), (own,), 3)
    assert comparison.problems[MemberId("worker-0")] == said
    assert [each.member for each in named] == ["worker-2"]


def test_a_window_that_is_being_written_waits(tmp_path: Path, written: Any) -> None:
    reader = WindowReader(tmp_path)
    written.set_window(128, OWN, 0)
    written.words[progress_page.WINDOW] |= 1
    assert read(tmp_path, reader) == ()
    written.words[progress_page.WINDOW] += 1
    assert len(read(tmp_path, reader)) == 1


@pytest.mark.parametrize("content", [b"", b"OTRP", b"x" * 4096, b"OTRP" + b"\xff" * 4092])
def test_a_page_that_is_none_has_no_window(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "0").write_bytes(content)
    assert read(tmp_path) == ()


def test_the_window_lies_where_the_contract_says(written: Any) -> None:
    assert 8 * progress_page.WINDOW == 128
    assert 8 * (progress_page.WINDOW + 1 + progress_page.WINDOW_NUMBERS) <= progress_page.LEFTOVER
