"""Commands that send a request to a master, and their errors if that is not possible."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.chaos import members
from outrider.runtime.processes import is_alive
from tests.unit.cli.conftest import RunningJob, Served, document, held
from tests.waiting import DEADLINE


@pytest.mark.parametrize(
    ("command", "request_"),
    [
        (("stop", "digits"), ("stop", {"hard": False, "reason": "`outrider stop`"})),
        (("stop", "digits", "--now"), ("stop", {"hard": True, "reason": "`outrider stop`"})),
        (("restart", "digits"), ("restart", {"at_checkpoint": False, "check": True})),
        (("restart", "digits", "--no-check"), ("restart", {"at_checkpoint": False, "check": False})),
        (("restart", "digits", "--at-checkpoint"), ("restart", {"at_checkpoint": True, "check": True})),
        (("scale", "digits", "3"), ("scale", {"replicas": 3})),
    ],
)
def test_a_command_sends_a_request_to_the_master(running_job: Any, outrider: Any, command: Any, request_: Any) -> None:
    job = running_job()
    result = outrider(*command)
    assert result.exit_code == 0, result.stderr
    assert job.posted == [request_]
    assert "digits" in result.stdout


def test_a_command_waits_for_a_master_that_is_starting(ended_job: Any, outrider: Any) -> None:
    job = RunningJob(ended_job(), document())
    with held(job.folder), ThreadPoolExecutor() as threads:
        stopping = threads.submit(outrider, "stop", "digits")
        served = Served(job)
        try:
            result = stopping.result(DEADLINE)
        finally:
            served.close()
    assert result.exit_code == 0, result.stderr
    assert [what for what, _ in job.posted] == ["stop"]


def test_a_refusal_is_shown_with_the_masters_message(running_job: Any, outrider: Any) -> None:
    running_job().refusal = "9 members: this job may have 1 to 4"
    result = outrider("scale", "digits", "9")
    assert result.exit_code != 0
    assert "9 members: this job may have 1 to 4" in result.stderr


@pytest.mark.parametrize("command", ["status", "events", "stacks", "collectives", "restart", "stop"])
def test_an_unknown_job_is_named_with_the_existing_ones(
    running_job: Any, ended_job: Any, outrider: Any, command: str
) -> None:
    running_job("one")
    ended_job("old")
    result = outrider(command, "nosuch")
    assert result.exit_code == 2
    assert "job 'nosuch' not found" in result.stderr
    assert "one (running), old (ended)" in result.stderr


@pytest.mark.parametrize("command", ["stacks", "restart", "stop"])
def test_a_request_to_an_ended_job_is_refused(ended_job: Any, outrider: Any, command: str) -> None:
    ended_job()
    result = outrider(command, "digits")
    assert result.exit_code == 2
    assert "digits is not running" in result.stderr


def test_a_command_without_a_job_lists_the_running_ones(running_job: Any, outrider: Any) -> None:
    running_job("one")
    running_job("two")
    result = outrider("stop")
    assert result.exit_code == 2
    assert "several jobs are running, name one of them: one, two" in result.stderr


@pytest.mark.parametrize("members", ["0", "-1", "513", "many"])
def test_a_size_out_of_range_says_the_range(running_job: Any, outrider: Any, members: str) -> None:
    job = running_job()
    result = outrider("scale", "digits", members)
    assert result.exit_code == 2
    assert members in result.stderr
    assert not job.posted


def bystander(**environment: str) -> subprocess.Popen[bytes]:
    """A process that waits until it is killed."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | environment
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def of_worker_0(folder: Path) -> subprocess.Popen[bytes]:
    """A process with unique marks: a signal to a member goes to all processes with its uid."""
    return bystander(OUTRIDER_DIR=str(folder / "members" / "worker-0"), OUTRIDER_POD_UID=f"uid of {folder}")


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate(timeout=DEADLINE)


def claim(folder: Path, pid: int) -> list[dict[str, Any]]:
    """The members of a status in which every pid of worker-0 is `pid`."""
    pids = {"sidecar": pid, "trainer": pid, "workers": [pid]}
    return [{"id": "worker-0", "state": "running", "rank_index": 0, "pids": pids}]


@pytest.mark.parametrize(
    "what", ["kill-process", "hang", "kill-launcher", "kill-sidecar", "kill-member", "freeze-member"]
)
def test_chaos_never_touches_a_process_without_the_jobs_marks(
    running_job: Any, outrider: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "PIDS_PATIENCE", 0.2)
    job = running_job()
    stranger = bystander()
    try:
        job.status["members"] = claim(job.folder, stranger.pid)
        result = outrider("chaos", what, "digits")
        assert result.exit_code != 0
        assert is_alive(stranger.pid)
        assert Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"
    finally:
        end(stranger)


@pytest.mark.parametrize("what", ["kill-process", "kill-launcher", "kill-sidecar", "kill-member"])
def test_chaos_kills_processes_with_the_jobs_marks(running_job: Any, outrider: Any, what: str) -> None:
    job = running_job()
    mine = of_worker_0(job.folder)
    try:
        job.status["members"] = claim(job.folder, mine.pid)
        result = outrider("chaos", what, "digits", "--signal", "SIGTERM")
        assert result.exit_code == 0, result.stderr
        assert mine.wait(DEADLINE) == -15
        assert "TERM" in result.stdout
    finally:
        end(mine)


def test_a_frozen_member_can_be_thawed_after_the_status_forgot_it(running_job: Any, outrider: Any) -> None:
    job = running_job()
    mine = of_worker_0(job.folder)
    try:
        job.status["members"] = claim(job.folder, mine.pid)
        assert outrider("chaos", "freeze-member", "digits").exit_code == 0
        assert os.waitpid(mine.pid, os.WUNTRACED)[1] & 0xFF == 0x7F
        job.status["members"] = []
        assert outrider("chaos", "thaw-member", "digits", "--member", "worker-0").exit_code == 0
        assert os.WIFCONTINUED(os.waitpid(mine.pid, os.WCONTINUED)[1])
    finally:
        end(mine)


def test_chaos_names_the_existing_members(running_job: Any, outrider: Any) -> None:
    running_job()
    result = outrider("chaos", "kill-process", "digits", "--member", "worker-9")
    assert result.exit_code == 2
    assert "--member worker-9: must be a member of digits" in result.stderr
    assert "worker-0, worker-1" in result.stderr


def test_a_signal_that_does_not_exist_is_refused(running_job: Any, outrider: Any) -> None:
    running_job()
    result = outrider("chaos", "kill-process", "digits", "--signal", "NOPE")
    assert result.exit_code == 2
    assert "NOPE" in result.stderr
