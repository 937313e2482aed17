"""The report that `outrider run` leaves behind, of a job that trains with torch and in which a rank was killed."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.local import plain
from tests.local.training import Training, kill, members, one_job, pids
from tests.unit.report.reader import Page

pytestmark = pytest.mark.slow


def test_a_killed_rank_is_in_the_report(tmp_path: Path) -> None:
    with one_job(tmp_path, "--nnodes", "2", "--log-dir", str(tmp_path / "logs")) as job:
        restart, world = job.training(2, more=15)
        kill(pids(world)[1])
        job.training(2, after=restart, more=15)
        job.event("Recovered", 0)
        running = Page(job.outrider("report", job.job, "-o", "-")).text
        assert f"{job.job} is running" in running
        job.end_well()
        assert f"  report: {tmp_path / 'logs' / 'report.html'}\n" in job.log()
        _check((tmp_path / "logs" / "report.html").read_text(), job, members(world)[1])


def _check(html: str, job: Training, member: str) -> None:
    page = Page(html)
    assert f"{job.job} succeeded after" in page.text
    assert f"Kind: WorkerExited Rank: 1 Rank index: 1 Member: {member} Node: {socket.gethostname()}" in page.text
    assert f"rank 1 on {member}: signal 9" in page.text
    assert "new_step" in page.text
    data = json.loads(page.scripts[0])
    assert [row[0] for row in data["rows"]] in (["0", "1"], ["0–1"])
    assert [fault[2:] for fault in data["faults"]] == [["WorkerExited", 1]]
    assert len(data["generations"]) == 2
    assert "What this report lacks" not in page.text


def test_a_report_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs" / "report.html").mkdir(parents=True)
    with one_job(tmp_path, "--nnodes", "1", "--log-dir", str(tmp_path / "logs"), script=plain.SCRIPT) as job:
        job.training(1)
        job.end_well()
        assert f"outrider: the report {tmp_path / 'logs' / 'report.html'} could not be written: " in job.log()
