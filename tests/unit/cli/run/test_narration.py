"""The log of a job while it runs, and its summary at the end."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from outrider.cli.run.log import EventLog, Mode, summary, summary_line
from outrider.cli.run.terminal import Screen
from outrider.cli.run.traceback_hold import Holding
from outrider.cli.text import seconds
from tests.unit.cli.conftest import document


def event(seq: int, kind: str, member: str | None = None, generation: str = "1.1", **detail: str) -> dict[str, Any]:
    return {
        "seq": seq,
        "time": "2026-11-21T03:00:00Z",
        "kind": kind,
        "severity": "normal",
        "member": member,
        "generation": generation,
        "reason": f"Reason {seq}.",
        "detail": detail,
    }


def logged(*events: dict[str, Any], mode: Mode = Mode.NORMAL) -> list[str]:
    err = io.BytesIO()
    log = EventLog(Screen(io.BytesIO(), err, terminal=False), mode)
    for each in events:
        log.log(each)
    return err.getvalue().decode().splitlines()


def started(seq: int, member: str, generation: str, group_rank: int) -> dict[str, Any]:
    where = {"master_addr": "127.0.0.1", "master_port": f"2000{generation[-1]}"}
    sizes = {"group_rank": str(group_rank), "group_world_size": "2", "world_size": "4"}
    return event(seq, "GenerationStarted", member, generation, **where, **sizes)


def test_a_generation_is_one_line() -> None:
    lines = logged(
        started(1, "worker-0", "1.1", 0),
        started(2, "worker-1", "1.1", 1),
        started(3, "worker-0", "1.2", 0),
    )
    assert [line.split(" ", 2)[2] for line in lines] == [
        "generation 1.1: 2 members, 4 ranks, rendezvous at 127.0.0.1:20001",
        "generation 1.2: 2 members, 4 ranks, rendezvous at 127.0.0.1:20002",
    ]


def test_an_event_is_logged_once() -> None:
    fault = event(4, "WorkerExited", "worker-2")
    assert len(logged(fault, fault, event(3, "WorkerExited"))) == 1


def test_what_only_confirms_that_all_is_well_is_left_out() -> None:
    assert logged(event(1, "CheckpointSaved"), event(2, "MemberReady", "worker-0")) == []


def test_a_failure_shows_the_scripts_own_traceback() -> None:
    lines = logged(event(1, "JobFailed", traceback="Traceback (most recent call last):\n  boom\nValueError: [x]"))
    assert lines[1:] == ["Traceback (most recent call last):", "  boom", "ValueError: [x]"]


def test_the_summary_counts_what_was_lost() -> None:
    faults = [document()["faults"][0], document()["faults"][0] | {"seconds_lost": None, "reason": "no step yet"}]
    lines = list(summary(document(phase="succeeded", faults=faults), elapsed=83.0))
    assert lines[0] == "digits succeeded after 1 m 23 s: 1,240 steps, 2 generations, 2 faults, goodput 96.2 %"
    assert "0.21 s lost: rank 1 was killed by SIGKILL" in lines[1]
    assert "no step since: no step yet" in lines[2]
    assert lines[3].strip() == "0.21 s lost in total; no step since the last fault"


def test_the_summary_shows_equal_faults_once() -> None:
    first = document()["faults"][0]
    reason = "Rank 1 failed with ValueError: loss is nan in batch {}."
    faults = [first | {"seconds_lost": lost, "reason": reason.format(n)} for n, lost in enumerate((1.0, 2.0, None))]
    lines = list(summary(document(phase="failed", faults=faults), elapsed=83.0))
    assert len(lines) == 2
    assert lines[1].endswith("no step since: 3 ×, first Rank 1 failed with ValueError: loss is nan in batch 0.")


def test_an_error_caused_by_the_end_of_another_rank_is_not_logged() -> None:
    effect = event(1, "WorkerExited", "worker-0") | {
        "reason": "Rank 0 on worker-0 failed, as an effect of the first failure."
    }
    assert logged(effect) == []


def test_the_summary_counts_repeated_steps() -> None:
    (line, *_) = summary(document(phase="succeeded", steps_repeated=172), elapsed=83.0)
    assert ": 1,240 steps (172 repeated), 2 generations" in line


def test_the_summary_says_if_the_steps_are_an_estimate() -> None:
    (line, *_) = summary(document(phase="succeeded", step_estimated=True), elapsed=83.0)
    assert ": about 1,240 steps, 2 generations" in line


def test_a_job_without_faults_is_one_line() -> None:
    assert len(list(summary(document(faults=[]), elapsed=1.0))) == 1


def test_the_summary_names_the_report() -> None:
    *_, line = summary(document(), 83.0, Path("/logs/report.html"))
    assert line == "  report: /logs/report.html"
    assert json.loads(summary_line(document(), 83.0, Path("/logs/report.html")))["report"] == "/logs/report.html"


def test_durations_have_the_units_that_people_use() -> None:
    assert [seconds(value) for value in (None, 0.2136, 59.9, 61, 3723.4)] == [
        "-",
        "0.21 s",
        "59.90 s",
        "1 m 01 s",
        "1 h 02 m 03 s",
    ]


def test_a_repeated_line_is_logged_once_a_minute() -> None:
    full = [
        event(number, "StatusWriteFailed") | {"reason": "The disk is full.", "time": f"2026-11-21T03:{time}Z"}
        for number, time in enumerate(("00:30", "00:31", "01:29", "01:30", "01:31", "02:29"), 1)
    ]
    assert len(logged(*full)) == 2


def test_a_repeated_line_is_logged_once_until_another_line_comes() -> None:
    full = [event(number, "StatusWriteFailed") | {"reason": "The disk is full."} for number in (1, 2, 3, 5)]
    lines = logged(*full[:3], event(4, "WorkerExited"), full[3])
    assert [line.split()[2] for line in lines] == ["StatusWriteFailed:", "WorkerExited:", "StatusWriteFailed:"]


def exited(seq: int, rank: int, how: str, behind: str = ".", generation: str = "1.1", **more: str) -> dict[str, Any]:
    reason = f"Rank {rank} on worker-{rank} {how}{behind}"
    return event(seq, "WorkerExited", f"worker-{rank}", generation) | {"reason": reason, "severity": "warning"} | more


EFFECT, TOO = ", as an effect of the first failure.", ", at the same moment."


def test_ranks_that_end_because_of_another_one_are_one_line_before_the_next_event() -> None:
    ends = [exited(rank, rank, "failed with RuntimeError: Connection closed by peer", EFFECT) for rank in range(2, 6)]
    same = exited(6, 6, "failed with ValueError: nan", TOO)
    other = exited(7, 7, "failed with KeyError: 'x'", TOO)
    lines = logged(exited(1, 1, "failed with ValueError: nan"), *ends, same, other, started(8, "worker-0", "1.2", 0))
    assert [line.split(" ", 2)[2] for line in lines] == [
        "WorkerExited: Rank 1 on worker-1 failed with ValueError: nan.",
        "5 other ranks ended because of it or in the same way; see `outrider logs`",
        "WorkerExited: Rank 7 on worker-7 failed with KeyError: 'x', at the same moment.",
        "generation 1.2: 2 members, 4 ranks, rendezvous at 127.0.0.1:20002",
    ]


def test_quiet_logs_only_warnings_and_the_end() -> None:
    events = [started(1, "worker-0", "1.1", 0), event(2, "JobStarted"), exited(3, 1, "exited with code 3"),
              event(4, "Recovered"), event(5, "JobSucceeded")]  # fmt: skip
    assert [line.split()[2] for line in logged(*events, mode=Mode.QUIET)] == [
        "WorkerExited:", "Recovered:", "JobSucceeded:",
    ]  # fmt: skip


def test_verbose_logs_every_event_with_its_details() -> None:
    lines = logged(started(1, "worker-0", "1.1", 0), event(2, "CheckpointSaved"), mode=Mode.VERBOSE)
    assert "GenerationStarted worker-0: Reason 1. master_addr=127.0.0.1 master_port=20001" in lines[0]
    assert "CheckpointSaved: Reason 2." in lines[1]


def test_log_json_writes_every_event_and_the_summary_as_a_line() -> None:
    events = [started(1, "worker-0", "1.1", 0), event(2, "CheckpointSaved")]
    assert [json.loads(line) for line in logged(*events, mode=Mode.JSON)] == events
    found = json.loads(summary_line(document(phase="succeeded"), 83.0))
    assert (found["kind"], found["phase"], found["steps"], found["seconds_lost"]) == (
        "Summary",
        "succeeded",
        1240,
        0.214,
    )


def test_a_traceback_that_was_shown_when_it_happened_is_not_shown_at_the_end() -> None:
    err = io.BytesIO()
    log = EventLog(Screen(io.BytesIO(), err, terminal=False), holding=Holding(lambda stream, line: None))
    log.log(exited(1, 1, "failed with ValueError: nan"))
    log.log(event(2, "JobFailed", traceback="Traceback (most recent call last):\nValueError: nan"))
    assert len(err.getvalue().decode().splitlines()) == 2
