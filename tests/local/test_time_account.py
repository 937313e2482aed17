"""The time account of a real job adds up, and says what the script itself says, as benchmarks/time_account.py does."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.master.core.account import stages
from tests.local.training import status_of
from tests.waiting import DEADLINE

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OUTRIDER = (sys.executable, "-P", "-E", "-m", "outrider")
STEPS, MEMBERS = 120, 2
SECONDS = 1.5
"""The benchmark holds half a second; a machine that runs other tests holds up a script between two lines of it."""


def own_account() -> Any:
    spec = importlib.util.spec_from_file_location("own_account", BENCHMARKS / "measure" / "own_account.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "trace"
        self.folder.mkdir()
        self.environment = {**os.environ, "OUTRIDER_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
        self.job_folder = folder / "home" / "jobs" / "counted"
        command = [*OUTRIDER, "run", "--job", "counted", "--nnodes", str(MEMBERS), "--silent-after", "10",
                   str(BENCHMARKS / "time_probe.py"), str(self.folder), str(STEPS)]  # fmt: skip
        with (folder / "out.log").open("wb") as log:
            self.run = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def past(self, step: int) -> dict[str, Any]:
        """The status once this step is made and every member trains."""
        give_up = time.monotonic() + DEADLINE
        while time.monotonic() < give_up:
            assert self.run.poll() is None, (self.folder.parent / "out.log").read_text()
            status = status_of(self.job_folder)
            if status.get("step", 0) >= step and all(row["pids"]["workers"] for row in status["members"]):
                return status
            time.sleep(0.05)
        raise AssertionError(f"no step {step} within {DEADLINE:g} s")

    def history(self) -> list[dict[str, Any]]:
        parts = self.job_folder.glob("history-*.json")
        return sorted((json.loads(path.read_text()) for path in parts), key=lambda part: part["since"])


@pytest.fixture
def job() -> Iterator[Job]:
    with tempfile.TemporaryDirectory(prefix="or-") as folder:  # pytest's own is too long for the path of a socket
        found = Job(Path(folder))
        yield found
        if found.run.poll() is None:
            found.run.send_signal(signal.SIGINT)
            found.run.wait(DEADLINE)


@pytest.mark.exhaustive
def test_a_job_with_two_crashes_is_counted_to_the_last_second(job: Job) -> None:
    for step in (30, 60):
        status = job.past(step)
        os.kill(status["members"][-1]["pids"]["workers"][0], signal.SIGKILL)
    assert job.run.wait(DEADLINE) == 0
    status, (part,) = status_of(job.job_folder), job.history()
    spent = status["time"]

    wall = MEMBERS * (part["until"] - part["began_at"])
    assert sum(spent.values()) == pytest.approx(wall, abs=0.1)
    assert spent.get("unknown", 0.0) <= 0.01 * wall
    assert status["goodput"] == pytest.approx(spent["productive"] / wall, abs=0.01)

    account = own_account()
    ends = [fault["at"] for fault in part["faults"]]
    assert account.beyond(spent, *account.of_the_script(job.folder, ends), SECONDS) == {}

    assert [fault["kind"] for fault in part["faults"]] == ["WorkerExited", "WorkerExited"]
    for fault in part["faults"]:
        assert set(fault["stages"]) == set(stages.WHAT)
        assert fault["ranks"] == [1]
        assert fault["evidence"][0]["sentence"] == "signal 9"
        assert sum(fault["stages"].values()) <= fault["seconds_lost"] + 0.1
