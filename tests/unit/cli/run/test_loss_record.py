"""The rank whose loss is recorded: the lowest one that prints a loss, until it is silent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from outrider.cli.run.loss_record import SILENT, LossRecord
from outrider.runtime.series import moments


def kept(folder: Path, printed: Iterable[tuple[float, str, str]]) -> list[tuple[float, float, int]]:
    """(time, loss, rank) of each record after members have printed these lines at these times."""
    lines = list(printed)
    clock = iter(at for at, _, line in lines if "loss" in line)
    record = LossRecord(folder, lambda: next(clock))
    for _, member, line in lines:
        record.line(member, line.encode())
    record.close()
    return [(each["time"], each["loss"], each["by"]) for each in moments(folder / "loss.jsonl")]


def test_the_loss_of_the_lowest_rank_that_prints_one_is_recorded(tmp_path: Path) -> None:
    printed = [
        (1.0, "worker-0", "[0]: starting\n"),
        (2.0, "worker-1", "[3]: loss 2.5\n"),
        (2.1, "worker-1", "[2]: loss 2.4\n"),
        (3.0, "worker-1", "[3]: loss 2.3\n"),
        (3.1, "worker-1", "[2]: loss 2.2\n"),
        (4.0, "worker-0", "[0]: val loss 9.9\n"),
        (5.0, "worker-1", "[2]: loss nan\n"),
    ]
    assert kept(tmp_path, printed) == [(2.0, 2.5, 3), (2.1, 2.4, 2), (3.1, 2.2, 2)]


def test_another_rank_is_read_after_the_first_one_was_silent(tmp_path: Path) -> None:
    printed = [
        (1.0, "worker-1", "[1]: loss 2.5\n"),
        (SILENT, "worker-3", "[3]: loss 2.4\n"),
        (SILENT + 2, "worker-3", "[3]: loss 2.3\n"),
    ]
    assert kept(tmp_path, printed) == [(1.0, 2.5, 1), (SILENT + 2, 2.3, 3)]


def test_without_prefixes_of_ranks_the_lowest_member_is_read(tmp_path: Path) -> None:
    printed = [(1.0, "worker-1", "loss=2.5"), (2.0, "chief-0", "loss=2.4"), (3.0, "worker-1", "loss=2.3")]
    assert kept(tmp_path, printed) == [(1.0, 2.5, 1), (2.0, 2.4, 0)]


def test_nothing_is_made_where_no_loss_is_said(tmp_path: Path) -> None:
    assert kept(tmp_path, [(1.0, "worker-0", "[0]: epoch 1\n")]) == []
    assert not (tmp_path / "loss.jsonl").exists()


def test_few_lines_a_second_are_searched(tmp_path: Path) -> None:
    printed = [(1.0 + i / 2000, "worker-0", f"[0]: val loss {i}\n") for i in range(1000)]
    printed += [(1.9, "worker-0", "[0]: loss 0.5\n"), (2.0, "worker-0", "[0]: loss 0.4\n")]
    assert kept(tmp_path, printed) == [(2.0, 0.4, 0)]
