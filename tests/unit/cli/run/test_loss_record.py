"""Whose loss is written down: one rank's, the lowest that says any, until it is silent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from outrider.cli.run.loss_record import SILENT, LossRecord
from outrider.runtime.series import moments


def kept(folder: Path, said: Iterable[tuple[float, str, str]]) -> list[tuple[float, float, int]]:
    """(time, loss, rank) of what is written where members say these lines at these times."""
    lines = list(said)
    clock = iter(at for at, _, line in lines if "loss" in line)
    record = LossRecord(folder, lambda: next(clock))
    for _, member, line in lines:
        record.line(member, line.encode())
    record.close()
    return [(each["time"], each["loss"], each["by"]) for each in moments(folder / "loss.jsonl")]


def test_the_lowest_rank_that_says_a_loss_is_listened_to(tmp_path: Path) -> None:
    said = [
        (1.0, "worker-0", "[0]: starting\n"),
        (2.0, "worker-1", "[3]: loss 2.5\n"),
        (2.1, "worker-1", "[2]: loss 2.4\n"),
        (3.0, "worker-1", "[3]: loss 2.3\n"),
        (3.1, "worker-1", "[2]: loss 2.2\n"),
        (4.0, "worker-0", "[0]: val loss 9.9\n"),
        (5.0, "worker-1", "[2]: loss nan\n"),
    ]
    assert kept(tmp_path, said) == [(2.0, 2.5, 3), (2.1, 2.4, 2), (3.1, 2.2, 2)]


def test_who_is_silent_makes_room_for_another_one(tmp_path: Path) -> None:
    said = [
        (1.0, "worker-1", "[1]: loss 2.5\n"),
        (SILENT, "worker-3", "[3]: loss 2.4\n"),
        (SILENT + 2, "worker-3", "[3]: loss 2.3\n"),
    ]
    assert kept(tmp_path, said) == [(1.0, 2.5, 1), (SILENT + 2, 2.3, 3)]


def test_where_ranks_have_no_prefix_members_are_told_apart(tmp_path: Path) -> None:
    said = [(1.0, "worker-1", "loss=2.5"), (2.0, "chief-0", "loss=2.4"), (3.0, "worker-1", "loss=2.3")]
    assert kept(tmp_path, said) == [(1.0, 2.5, 1), (2.0, 2.4, 0)]


def test_nothing_is_made_where_no_loss_is_said(tmp_path: Path) -> None:
    assert kept(tmp_path, [(1.0, "worker-0", "[0]: epoch 1\n")]) == []
    assert not (tmp_path / "loss.jsonl").exists()


def test_few_lines_a_second_are_searched(tmp_path: Path) -> None:
    said = [(1.0 + i / 2000, "worker-0", f"[0]: val loss {i}\n") for i in range(1000)]
    said += [(1.9, "worker-0", "[0]: loss 0.5\n"), (2.0, "worker-0", "[0]: loss 0.4\n")]
    assert kept(tmp_path, said) == [(2.0, 0.4, 0)]
