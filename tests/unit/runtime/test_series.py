"""A time series: dense while it is young, sparse when it is old, and never a reason for a failure."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from outrider.runtime.series import DENSITY, Series, moments


def test_the_distance_of_two_records_grows_with_the_age_of_the_series(tmp_path: Path) -> None:
    series = Series(tmp_path / "some.jsonl")
    for second in range(30 * 86400 // 60):
        series.add(1e9 + 60 * second, step=second)
    series.close()
    found = [moment["time"] - 1e9 for moment in moments(tmp_path / "some.jsonl")]
    assert found[:3] == [0, 60, 120]
    assert all(b - a >= b / DENSITY for a, b in pairwise(found))
    assert 5_000 < len(found) < 12_000
    assert found[-1] > 0.999 * 30 * 86400


def test_the_next_writer_continues_with_the_age_of_the_series(tmp_path: Path) -> None:
    first = Series(tmp_path / "some.jsonl")
    first.add(1000.0, loss=2.0)
    first.close()
    with (tmp_path / "some.jsonl").open("a") as file:
        file.write('{"time": 1001.0, "lo')
    second = Series(tmp_path / "some.jsonl")
    for tenth in range(10):
        second.add(5000.0 + tenth / 10, loss=1.0)
    second.close()
    assert [moment["time"] for moment in moments(tmp_path / "some.jsonl")] == [1000.0, 5000.0]


def test_a_clock_that_is_set_back_does_not_end_it(tmp_path: Path) -> None:
    series = Series(tmp_path / "some.jsonl")
    for at in (2000.0, 2001.0, 500.0, 501.0):
        series.add(at)
    series.close()
    assert [moment["time"] for moment in moments(tmp_path / "some.jsonl")] == [2000.0, 2001.0, 500.0, 501.0]


def test_a_file_that_cannot_be_written_raises_no_error(tmp_path: Path) -> None:
    series = Series(tmp_path / "none" / "some.jsonl")
    series.add(1.0)
    series.close()
    folder = Series(tmp_path)
    folder.add(1.0)
    folder.close()
    assert list(moments(tmp_path)) == []
    assert list(moments(tmp_path / "none" / "some.jsonl")) == []
