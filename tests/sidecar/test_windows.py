"""Windows of steps as a sidecar reads them off the progress pages, which the user's processes write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.shell.windows import BEGINS, LONGEST, WindowReader
from training_hooks import own_time, page
from wire.ids import Generation
from wire.messages import OwnTime

OWN = own_time.Own(own_time.RECORDER_AND_CPU, 8, 60_000_000, 5_000_000, 100_000_000, 77, 4_000_000, 1_000_000, 500_000)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "progress").mkdir()
    made = page.Page(str(tmp_path / "progress" / "0"), 1, 3)
    yield made
    made.words.release()
    made.map.close()


def read(folder: Path, reader: WindowReader | None = None, generation: Generation | None = None) -> tuple[OwnTime, ...]:
    return (reader or WindowReader(folder)).read(generation or Generation(1, 3), (0,))


def test_a_window_is_handed_on_once(tmp_path: Path, written: Any) -> None:
    reader = WindowReader(tmp_path)
    assert read(tmp_path, reader) == ()
    written.set_window(128, OWN, 2_000_000, 3_000_000)
    expected = OwnTime(0, 128, 8, "recorder and cpu", 0.06, 0.005, 0.1, 77, 0.004, 0.001, 0.0005, 0.002, 0.003)
    assert read(tmp_path, reader) == (expected,)
    assert read(tmp_path, reader) == ()
    written.set_window(256, OWN, 0, 0)
    assert [own.first_step for own in read(tmp_path, reader)] == [256]


def test_a_window_of_another_generation_is_none(tmp_path: Path, written: Any) -> None:
    written.set_window(128, OWN, 0, 0)
    assert read(tmp_path, generation=Generation(1, 4)) == ()


def test_a_new_process_begins_without_one(tmp_path: Path, written: Any) -> None:
    written.set_window(128, OWN, 0, 0)
    again = page.Page(str(tmp_path / "progress" / "0"), 1, 3)
    assert read(tmp_path) == ()
    again.words.release()
    again.map.close()


@pytest.mark.parametrize(
    "bad",
    [
        OWN._replace(source=9),
        OWN._replace(step=0),
        OWN._replace(gap=2**63),
        OWN._replace(waited=LONGEST + 1),
        OWN._replace(step=2**64 - 1),
    ],
)
def test_what_can_be_no_time_is_no_window(tmp_path: Path, written: Any, bad: Any) -> None:
    written.set_window(128, bad, 0, 0)
    assert read(tmp_path) == ()


def test_a_window_that_is_being_written_waits(tmp_path: Path, written: Any) -> None:
    reader = WindowReader(tmp_path)
    written.set_window(128, OWN, 0, 0)
    written.words[page.WINDOW] |= 1
    assert read(tmp_path, reader) == ()
    written.words[page.WINDOW] += 1
    assert len(read(tmp_path, reader)) == 1


@pytest.mark.parametrize("content", [b"", b"OTRP", b"x" * 4096, b"OTRP" + b"\xff" * 4092])
def test_a_page_that_is_none_has_no_window(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "0").write_bytes(content)
    assert read(tmp_path) == ()


def test_the_window_lies_where_the_contract_says(written: Any) -> None:
    assert BEGINS == 8 * page.WINDOW == 128
    assert 8 * (page.WINDOW + 1 + page.WINDOW_NUMBERS) <= page.LEFTOVER
