"""`outrider report` on what the folder of a job holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.report.documents import part, status
from tests.unit.report.reader import Page

Job = Callable[..., Path]
Outrider = Callable[..., Any]


@pytest.fixture
def reported(home: Path, ended_job: Job, outrider: Outrider, tmp_path: Path) -> Callable[..., str]:
    """The text of the report of a job with these files."""

    def make(files: dict[str, Any]) -> str:
        folder = ended_job("digits", **{name: each for name, each in status(4).items() if name != "job"})
        for name, content in files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        done = outrider("report", "digits", "-o", tmp_path / "r.html")
        assert done.exit_code == 0, done.output
        assert done.output == f"{tmp_path / 'r.html'}\n"
        return Page((tmp_path / "r.html").read_text()).text

    return make


def test_all_parts_of_a_history_are_read_in_the_order_of_their_masters(reported: Callable[..., str]) -> None:
    names = {f"history-{term}.json": part(4, [], term=term, until=400.0 * term) for term in (1, 2, 10)}
    text = reported(names)
    assert "There is no history between master 2 and master 10." in text


def test_a_part_that_is_no_json_is_a_sentence(reported: Callable[..., str]) -> None:
    text = reported({
        "history-1.json": b'{"version":1,"term', "history-2.json": b"[" * 100_000, "history-3.json": part(4, term=3),
        "history-4.json": b"9" * 5000, "events.jsonl": b'{"half\n\xff\xfe\n[]\n',
    })  # fmt: skip
    assert "history-1.json is left out: Unterminated string" in text
    assert "history-2.json is left out: " in text
    assert "history-4.json is left out: " in text
    assert "Kind: WorkerExited" in text


def test_a_job_of_an_older_release_has_what_its_status_and_events_have(
    home: Path, ended_job: Job, outrider: Outrider
) -> None:
    folder = ended_job()
    lines = [
        {"seq": 1, "time": "2026-11-21T02:59:00Z", "kind": "JobStarted", "severity": "normal", "member": None,
         "generation": "1.0", "reason": "The job begins.", "detail": {}},
        {"seq": 2, "time": "2026-11-21T03:00:01Z", "kind": "Recovered", "severity": "normal", "member": None,
         "generation": "1.2", "reason": "0.2 s were lost.", "detail": {}},
    ]  # fmt: skip
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = Page(outrider("report", "digits", "-o", "-").output).text
    assert "There is no history of this job" in text
    assert "Kind: WorkerExited Rank: not known Rank index: 0 Member: worker-0 Node: this machine" in text
    assert "+1.0 s Recovered 0.2 s were lost." in text


def test_a_running_job_is_reported_by_its_master(running_job: Callable[..., Any], outrider: Outrider) -> None:
    running_job()
    text = Page(outrider("report", "-o", "-").output).text
    assert "digits is running" in text


def test_a_file_that_cannot_be_written_is_an_error(
    home: Path, ended_job: Job, outrider: Outrider, tmp_path: Path
) -> None:
    ended_job()
    done = outrider("report", "digits", "-o", tmp_path / "away" / "r.html")
    assert done.exit_code == 2
    assert f"-o {tmp_path / 'away' / 'r.html'}: must be writable" in done.output


def test_a_job_of_a_cluster_needs_its_name(outrider: Outrider) -> None:
    assert "JOB: must be given with --cluster" in outrider("report", "--cluster").output


def test_a_job_that_does_not_exist_is_an_error(home: Path, outrider: Outrider) -> None:
    assert outrider("report", "digits").exit_code == 2
