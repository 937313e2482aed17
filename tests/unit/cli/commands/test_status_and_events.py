"""The status and events of a job: over its socket while it runs, from its folder afterwards."""

from __future__ import annotations

import fcntl
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from outrider.cli.commands.events import followed
from outrider.cli.commands.status import _members
from tests.unit.cli.conftest import document

EVENTS: list[dict[str, Any]] = [
    {
        "seq": number,
        "time": "2026-11-21T03:00:00Z",
        "kind": kind,
        "severity": "normal",
        "member": None,
        "generation": "1.1",
        "reason": f"reason {number}",
        "detail": {},
    }
    for number, kind in enumerate(("GenerationStarted", "WorkerExited", "Recovered"), start=1)
]


def write_events(folder: Path, events: list[dict[str, Any]], tail: str = "") -> None:
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + tail)


def test_the_document_of_a_running_job_is_its_masters_answer(running_job: Any, outrider: Any) -> None:
    job = running_job()
    job.status = document(step=77)
    result = outrider("status", "digits", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == job.status


def test_the_only_running_job_needs_no_name(running_job: Any, ended_job: Any, outrider: Any) -> None:
    running_job("one")
    ended_job("another")
    assert json.loads(outrider("status", "--json").stdout)["job"] == "one"


def test_several_running_jobs_are_listed(running_job: Any, outrider: Any) -> None:
    running_job("one")
    running_job("two")
    listed = json.loads(outrider("status", "--json").stdout)
    assert [each["job"] for each in listed["jobs"]] == ["one", "two"]
    assert "1,240" in outrider("status").stdout


def test_a_narrow_terminal_shows_the_columns_that_matter_most() -> None:
    members = [{"id": f"worker-{n}", "rank_index": n, "state": "running", "mode": "template", "step": 1240,
                "cpu": 0.5, "memory_mib": 812.0, "gpus": 0, "pids": {"sidecar": 11, "trainer": 12, "workers": [13, 14]}}
               for n in range(2)]  # fmt: skip
    for width, last in ((40, "MiB"), (120, "workers")):
        screen = Console(width=width, file=io.StringIO())
        screen.print(_members(members, screen))
        head, *rows = screen.file.getvalue().splitlines()
        assert head.split()[-1] == last
        assert [row.split()[0] for row in rows] == ["worker-0", "worker-1"]


def test_the_table_shows_members_and_faults(running_job: Any, outrider: Any) -> None:
    running_job()
    shown = outrider("status", "digits").stdout
    for expected in ("digits is running", "worker-0", "spare", "13 14", "0.21 s", "rank 1 was killed by SIGKILL"):
        assert expected in shown


def test_the_table_of_a_node_check_says_which_member_failed_and_why(running_job: Any, outrider: Any) -> None:
    job = running_job()
    well = {"member": "worker-0", "status": "ok", "kind": "torch cpu", "compute": 0.051, "network": 0.004,
            "elapsed": 1.2, "why": ""}  # fmt: skip
    bad = well | {"member": "worker-1", "status": "failed (died)", "compute": 0.0, "why": "killed by SIGKILL"}
    rounds = {"round": 1, "elapsed": 1.31, "ok": 1, "measured": 40, "members": {"0": well, "1": bad},
              "verdicts": {"1": "faulty: compute"}}  # fmt: skip
    job.status = document(node_check=[rounds])
    shown = outrider("status", "digits").stdout
    for expected in ("check round", "0.051 s", "failed (died)", "killed by SIGKILL; faulty: compute", "and 38 more"):
        assert expected in shown


def test_the_status_of_an_ended_job_comes_from_its_folder(ended_job: Any, outrider: Any) -> None:
    ended_job(phase="succeeded", exit_code=0)
    assert "digits is succeeded" in outrider("status", "digits").stdout


def test_a_job_whose_command_was_killed_is_not_shown_as_running(ended_job: Any, outrider: Any) -> None:
    ended_job()
    shown = json.loads(outrider("status", "digits", "--json").stdout)
    assert shown["phase"] == "failed"
    assert "was killed" in shown["message"]
    assert {member["state"] for member in shown["members"]} == {"gone"}


def test_the_last_saved_status_is_shown_while_the_master_is_away(
    running_job: Callable[..., Any], ended_job: Any, outrider: Any
) -> None:
    job = running_job()
    (job.folder / "master.sock").unlink()
    shown = json.loads(outrider("status", "digits", "--json").stdout)
    assert shown["step"] == 1240
    assert shown["message"].startswith("as last saved")


def test_events_are_read_from_the_folder_up_to_the_last_whole_line(ended_job: Any, outrider: Any) -> None:
    write_events(ended_job(), EVENTS, tail='{"seq": 4, "ki')
    lines = outrider("events", "digits").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["GenerationStarted:", "WorkerExited:", "Recovered:"]


def test_no_text_of_an_error_reaches_the_terminal_as_an_escape_sequence(ended_job: Any, outrider: Any) -> None:
    reason = "Rank 0 failed with ValueError: \x1b]0;x\x07 caf\udce9."
    fault = document()["faults"][0] | {"reason": reason}
    write_events(ended_job(phase="failed", message=reason, faults=[fault]), [EVENTS[0] | {"reason": reason}])
    shown = outrider("status", "digits").stdout + outrider("events", "digits").stdout
    assert shown.count("ValueError: \ufffd]0;x\ufffd caf\ufffd.") == 3
    assert "\x1b]" not in shown


def test_following_shows_each_event_once_whether_it_was_written_or_is_served(running_job: Any) -> None:
    job = running_job()
    write_events(job.folder, EVENTS[:2])
    job.events = EVENTS
    shown: list[int] = []
    for event in followed("digits"):
        shown.append(event["seq"])
        if len(shown) == 3:
            break
    assert shown == [1, 2, 3]


def test_following_an_ended_job_shows_its_saved_events(ended_job: Any, outrider: Any) -> None:
    write_events(ended_job(), EVENTS)
    result = outrider("events", "digits", "--follow", "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == EVENTS


def test_damaged_events_are_skipped(ended_job: Any, outrider: Any) -> None:
    whole = json.dumps(EVENTS[0])
    (ended_job() / "events.jsonl").write_bytes(b'\xff\xfe{"seq": "x"}\nnull\n{"seq": 2}\n' + whole.encode() + b"\n")
    result = outrider("events", "digits", "--json")
    assert result.exit_code == 0
    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [1]


@pytest.mark.parametrize("content", ["{{{{", "[1, 2]", "{}", '{"job": "digits", "phase": 3}', "\udcff\udcfe"])
def test_a_damaged_status_is_named(ended_job: Any, outrider: Any, content: str) -> None:
    path = ended_job() / "status.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    result = outrider("status", "digits")
    assert result.exit_code == 2
    assert f"cannot be read: {path}" in result.stderr
    assert outrider("status").exit_code == 0


def test_a_lock_of_the_same_inode_number_elsewhere_is_not_the_jobs(ended_job: Any, outrider: Any) -> None:
    lock = ended_job() / "lock"
    lock.write_text("1\n")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "is not running" in outrider("stop", "digits").stderr


def test_an_empty_name_is_refused(ended_job: Any, outrider: Any) -> None:
    ended_job()
    result = outrider("status", "")
    assert result.exit_code == 2
    assert "job '' not found" in result.stderr
    assert "digits (ended)" in result.stderr


def test_the_error_for_an_unknown_job_has_a_short_list(ended_job: Any, running_job: Any, outrider: Any) -> None:
    for number in range(30):
        ended_job(f"old-{number}")
    running_job("live")
    error = outrider("stop", "nosuch").stderr
    assert "existing jobs: live (running), old-" in error
    assert "and 23 more" in error
