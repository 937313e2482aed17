"""What the answer of a rehearsal means for the user."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.cli.doctor.trainer import judged

WELL = {"parked": 8, "seconds": 2.1, "unsafe": "", "threads": {}, "left_out": {}, "torch": "2.13.0", "notes": []}


@pytest.mark.parametrize(
    ("changes", "levels", "words"),
    [
        ({}, ["ok", "ok"], "8 imports done (2.1 s saved)"),
        ({"refused": "train.py line 1: ModuleNotFoundError"}, ["problem"], "train.py line 1"),
        ({"unchecked": "MemoryError"}, ["warning"], "could not be checked: MemoryError"),
        ({"left_out": {"ray": "it reads RANK while it is imported"}}, ["ok", "warning", "ok"], "each rank imports ray"),
        (
            {"unsafe": "1 thread runs in it (a)", "threads": {"lib.sub": 1}},
            ["ok", "warning"],
            "each rank imports lib i",
        ),
        ({"unsafe": "it has opened /dev/nvidia0"}, ["ok", "warning"], "it has opened /dev/nvidia0"),
        ({"torch": "", "notes": ["early imports end at line 3, which"]}, ["ok", "warning"], "end at line 3"),
        ({"notes": ["early imports end at line 30, which"]}, ["ok", "ok"], "2.1 s saved"),
        ({"notes": None, "threads": None}, ["ok", "ok"], "2.1 s saved"),
    ],
)
def test_a_rehearsal_becomes_findings(changes: dict[str, Any], levels: list[str], words: str) -> None:
    found = list(judged(WELL | changes, ["python", "-u", "train.py", "--lr", "1"]))
    assert [each.level for each in found] == levels
    assert any(words in each.text for each in found)
    assert all(each.fix for each in found if each.level != "ok")


def test_an_interpreter_of_an_older_release_of_the_hooks_is_understood() -> None:
    assert [each.level for each in judged({"parked": 3}, ["python", "train.py"])] == ["ok", "ok"]
