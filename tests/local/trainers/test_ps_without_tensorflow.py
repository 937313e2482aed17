"""A job with parameter servers whose script is no TensorFlow: the roles, who is started again, and whose end it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.runtime.processes import is_alive
from tests.local.chapters import live_through
from tests.local.trainers.parameter_servers import COMMON, PsTraining
from tests.local.training import DEADLINE, kill, one_job, until

pytestmark = pytest.mark.slow
SCRIPT = (
    COMMON
    + """
say(config=CONFIG, worker={name: value for name, value in os.environ.items() if name.startswith("WORKER_")})
while ROLE != "chief" or not is_over():
    time.sleep(0.02)
"""
)


def each_member_is_told_its_task(job: PsTraining) -> None:
    for role in ("ps", "chief", "worker"):
        told = until(lambda role=role: job.told_config(role), job.story)
        assert told["config"]["task"] == {"type": role, "index": 0}
        assert sorted(told["config"]["cluster"]) == ["chief", "ps", "worker"]


def a_ps_process_is_killed_and_started_again_in_its_member(job: PsTraining) -> None:
    mark, old = job.mark(), job.pid("ps")
    others = [job.pid(role) for role in ("chief", "worker")]
    kill(old)
    job.event("WorkerExited", mark, "ps-0", "SIGKILL")
    until(lambda: job.pid("ps") != old, "another one")
    assert job.at("ps")["id"] == "ps-0"
    assert [job.pid(role) for role in ("chief", "worker")] == others


def a_lost_worker_is_replaced_at_its_place_and_the_chief_goes_on(job: PsTraining) -> None:
    mark, chief, config = job.mark(), job.pid("chief"), job.told_config("worker")["config"]
    job.outrider("chaos", "kill-member", job.job, "--member", "worker-0")
    job.event("MemberLost", mark, "worker-0")
    until(lambda: job.told_config("worker")["worker"]["WORKER_ID"] == "1", "the new worker")
    assert job.at("worker")["id"] == "worker-1"
    assert job.told_config("worker")["config"] == config
    assert job.pid("chief") == chief


def the_job_ends_with_its_chief(job: PsTraining) -> None:
    pids = [job.pid(role) for role in ("ps", "worker")]
    (job.folder / "end").touch()
    assert job.process.wait(DEADLINE) == 0, job.story()
    job.event("JobSucceeded", 0, "The chief has ended with code 0")
    assert not [pid for pid in pids if is_alive(pid)]


def test_a_job_with_parameter_servers_loses_each_role(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with one_job(tmp_path, "--ps", "1", "--workers", "1", "--chief", kind=PsTraining, script=SCRIPT) as job:
        live_through(
            subtests,
            job,
            each_member_is_told_its_task,
            a_ps_process_is_killed_and_started_again_in_its_member,
            a_lost_worker_is_replaced_at_its_place_and_the_chief_goes_on,
            the_job_ends_with_its_chief,
        )
