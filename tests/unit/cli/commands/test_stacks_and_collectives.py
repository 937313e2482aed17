"""The stacks and collectives that a user reads from the members' answers, and the ranks that are missing."""

from __future__ import annotations

import json
from typing import Any

from outrider.cli.commands.collectives import who_is_missing


def rank(number: int, seq: int | None, state: str = "started", group: str = "default_pg") -> dict[str, Any]:
    last = {
        "seq": seq,
        "op": "gloo:all_reduce",
        "state": state,
        "sizes": [[4, 4]],
        "dtypes": ["Float"],
        "group": group,
        "frame": "train.py:33 main",
        "age": 12.5,
    }
    return {"rank": number, "local_rank": 0, "pid": 100 + number, "step": 7, "phase": "step"} | {
        "collective": None if seq is None else last
    }


def test_a_rank_that_ends_inside_a_collective_which_some_have_finished_is_the_one_that_is_missing() -> None:
    found = [rank(0, 232), rank(1, 231), rank(2, 231), rank(3, None)]
    assert list(who_is_missing(found)) == ["rank 3 has not entered gloo:all_reduce number 231 of group default_pg"]
    assert list(who_is_missing([rank(0, 15), rank(1, 14)])) == [
        "rank 1 has not entered gloo:all_reduce number 15 of group default_pg"
    ]


def test_the_missing_rank_is_named() -> None:
    found = [rank(0, 14), rank(1, 14), rank(2, 13, "completed")]
    assert list(who_is_missing(found)) == ["rank 2 has not entered gloo:all_reduce number 14 of group default_pg"]


def test_a_rank_without_any_collective_is_missing_too() -> None:
    assert list(who_is_missing([rank(0, 1), rank(1, None), rank(2, None)])) == [
        "ranks 1, 2 have not entered gloo:all_reduce number 1 of group default_pg"
    ]


def test_no_rank_is_named_if_all_have_entered_the_collective() -> None:
    assert list(who_is_missing([rank(0, 14), rank(1, 14)])) == [
        "every rank has entered gloo:all_reduce number 14 of group default_pg"
    ]


def test_ranks_that_wait_in_different_collectives_of_one_number_do_not_meet() -> None:
    other = rank(1, 14)
    other["collective"]["op"] = "gloo:barrier"
    assert list(who_is_missing([rank(0, 14), other])) == [
        "ranks differ in collective number 14 of group default_pg: gloo:all_reduce, gloo:barrier"
    ]


def test_nothing_is_printed_if_no_rank_waits() -> None:
    assert list(who_is_missing([rank(0, 14, "completed"), rank(1, 13, "completed")])) == []


def test_the_groups_of_a_job_are_judged_apart() -> None:
    found = [rank(0, 3, group="tp"), rank(1, 2, "completed", "tp"), rank(2, 9, "completed", "dp")]
    assert list(who_is_missing(found)) == ["rank 1 has not entered gloo:all_reduce number 3 of group tp"]


def test_collectives_are_shown_by_rank_with_members_that_did_not_answer(running_job: Any, outrider: Any) -> None:
    job = running_job()
    job.answers = {"worker-1": {"ranks": [rank(1, 13, "completed")]}, "worker-0": {"ranks": [rank(0, 14)]}}
    result = outrider("collectives", "digits")
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1"]
    assert "train.py:33 main" in lines[1]
    assert "4×4" in lines[1]
    assert "rank 1 has not entered" in lines[3]
    assert "worker-9 did not answer" in result.stderr
    assert json.loads(outrider("collectives", "digits", "--json").stdout)["members"] == job.answers


def test_stacks_are_shown_by_rank(running_job: Any, outrider: Any) -> None:
    job = running_job()
    first = rank(0, None) | {
        "stack": 'Current thread 0x1 (most recent call first):\n  File "train.py", line 33 in main\n'
    }
    job.answers = {"worker-1": {"ranks": [rank(1, None)]}, "worker-0": {"ranks": [first]}}
    text = outrider("stacks", "digits").stdout
    assert text.index("rank 0 (worker-0, pid 100), step 7") < text.index("line 33 in main") < text.index("rank 1")
    assert "no stack" in text


def test_a_job_without_any_answer_is_an_error(running_job: Any, outrider: Any) -> None:
    running_job()
    result = outrider("stacks", "digits")
    assert result.exit_code == 1
    assert "no member of digits answered" in result.stderr
