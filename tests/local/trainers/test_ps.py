"""TensorFlow jobs with parameter servers: one of each style stands through it all, one fault after the other."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.runtime.processes import is_alive
from tests.local.trainers.parameter_servers import COORDINATOR, SAVE_EVERY, SESSIONS, PsTraining
from tests.local.training import until

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
]


def made(tmp: Path, script: str, *flags: str) -> Iterator[PsTraining]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    job = PsTraining(tmp, home, "--ps", "1", "--workers", "1", "--chief", *flags, "--silent-after", "10", script=script)
    try:
        yield job
    finally:
        job.close()
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PsTraining]:
    yield from made(tmp_path_factory.mktemp("sessions"), SESSIONS, "--evaluator")


@pytest.fixture(scope="module")
def coordinated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PsTraining]:
    yield from made(tmp_path_factory.mktemp("coordinated"), COORDINATOR)


def kill(pid: int) -> float:
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid), "its end")
    return time.time()


def train(job: PsTraining, *roles: str) -> None:
    """Until all of them do, and a checkpoint is there."""
    for role in roles:
        job.steps_on(role, time.time())
    until(lambda: list((job.folder / "model").glob("*.index")), "a checkpoint", 120)


# -- monitored sessions -----------------------------------------------------------------------------------------------
def test_each_member_is_told_its_task_and_its_steps_are_seen(sessions: PsTraining) -> None:
    train(sessions, "chief", "worker")
    told = sessions.told_config("worker")
    assert told["config"]["task"] == {"type": "worker", "index": 0}
    assert sorted(told["config"]["cluster"]) == ["chief", "ps", "worker"]
    assert told["worker"] == {"WORKER_TYPE": "worker", "WORKER_ID": "0", "WORKER_RANK": "0", "WORKER_NUM": "1"}
    assert sessions.at("chief")["mode"] == "fork"
    until(lambda: sessions.status()["step"] > SAVE_EVERY and sessions.at("worker")["step"] > 0, "steps in the status")
    sessions.event("CheckpointSaved", 0, "chief-0")
    sessions.event("SaveHandlerRegistered", 0, "session")


def test_a_ps_process_that_is_killed_interrupts_the_others_which_go_on_from_the_last_checkpoint(
    sessions: PsTraining,
) -> None:
    train(sessions, "chief", "worker")
    mark, before = sessions.mark(), max(row["step"] for row in sessions.steps_of("chief"))
    at = kill(sessions.pid("ps"))
    sessions.event("Recovered", mark, "All workers train again with ps-0")
    for role in ("chief", "worker"):
        rows = sessions.steps_on(role, at + 0.5)
        assert rows[0]["step"] > before - 3 * SAVE_EVERY
    assert sessions.at("ps")["id"] == "ps-0"


def test_a_lost_worker_is_replaced_at_its_place_and_the_chief_trains_on(sessions: PsTraining) -> None:
    train(sessions, "chief", "worker")
    mark, chief, config = sessions.mark(), sessions.pid("chief"), sessions.told_config("worker")["config"]
    at = time.time()
    sessions.outrider("chaos", "kill-member", sessions.job, "--member", "worker-0")
    sessions.event("MemberLost", mark, "worker-0")
    meanwhile = sessions.steps_on("chief", at)
    until(lambda: sessions.told_config("worker")["worker"]["WORKER_ID"] == "1", "the new worker", 120)
    assert sessions.at("worker")["id"] == "worker-1"
    told = sessions.told_config("worker")
    sessions.steps_on("worker", told["time"])
    assert told["config"] == config
    assert (told["worker"]["WORKER_ID"], told["worker"]["WORKER_RANK"]) == ("1", "0")
    assert sessions.pid("chief") == chief
    assert meanwhile[0]["time"] < told["time"], "the chief waited for the new worker"


def test_a_chief_that_is_killed_begins_again_and_restores(sessions: PsTraining) -> None:
    train(sessions, "chief", "worker")
    mark, worker = sessions.mark(), sessions.pid("worker")
    at = kill(sessions.pid("chief"))
    sessions.event("WorkerExited", mark, "chief-0", "SIGKILL")
    assert sessions.steps_on("chief", at)[0]["step"] > SAVE_EVERY
    sessions.steps_on("worker", at)
    assert sessions.pid("worker") == worker


def test_an_evaluator_comes_and_goes_and_the_job_ends_with_its_chief(sessions: PsTraining) -> None:
    train(sessions, "chief")
    at = kill(sessions.pid("evaluator"))
    until(lambda: [row for row in sessions.rows("evaluator") if row["time"] > at and row.get("evaluated")], "it", 120)
    sessions.steps_on("chief", at)
    pids = [sessions.pid(role) for role in ("ps", "worker")]
    (sessions.folder / "end").touch()
    assert sessions.process.wait(timeout=120) == 0, sessions.story()
    sessions.event("JobSucceeded", 0, "The chief has ended with code 0")
    assert not [pid for pid in pids if is_alive(pid)]


# -- a coordinator ----------------------------------------------------------------------------------------------------
def test_a_coordinator_uses_the_worker_that_takes_a_lost_ones_place(coordinated: PsTraining) -> None:
    train(coordinated, "chief")
    mark, chief = coordinated.mark(), coordinated.pid("chief")
    coordinated.outrider("chaos", "kill-member", coordinated.job, "--member", "worker-0")
    coordinated.event("MemberLost", mark, "worker-0")
    until(lambda: coordinated.at("worker")["id"] == "worker-1", "the new worker", 120)
    coordinated.steps_on("chief", time.time())
    assert coordinated.pid("chief") == chief, "the only worker was lost, and the coordinator waited for the next"


def test_a_coordinator_that_ends_for_a_lost_ps_begins_again_at_no_cost(coordinated: PsTraining) -> None:
    train(coordinated, "chief")
    mark = coordinated.mark()
    at = kill(coordinated.pid("ps"))
    before = max(row["step"] for row in coordinated.steps_of("chief") if row["time"] <= at)
    coordinated.event("LostPsSideEffect", mark, "no restart is charged")
    rows = coordinated.steps_on("chief", at + 0.5)
    assert before - 3 * SAVE_EVERY < rows[0]["step"] <= before + SAVE_EVERY
    until(lambda: coordinated.status()["step"] > before, "closures as steps")
    (coordinated.folder / "end").touch()
    assert coordinated.process.wait(timeout=120) == 0, coordinated.story()
