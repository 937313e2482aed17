"""`outrider run` as a user starts it: what is printed where, how it ends, what stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.runtime.processes import marked
from tests.tiers import witnesses
from tests.waiting import DEADLINE

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1:], flush=True)
print("a warning", file=sys.stderr, flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
"""


class Run:
    """One `outrider run` in a folder of its own; its standard error can be read line by line."""

    def __init__(self, folder: Path, home: Path, *arguments: str) -> None:
        command = [sys.executable, "-P", "-E", "-m", "outrider", "run", *arguments]
        self.home = home
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )

    def until(self, pattern: str) -> str:
        """The next line of the standard error that matches."""
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError(f"no line like {pattern!r} in:\n{''.join(seen)}")

    def runs(self, times: int = 1) -> None:
        """So many worlds have come to run, all their ranks."""
        deadline = time.monotonic() + DEADLINE
        while (
            sum(path.read_text().count('"GenerationRunning"') for path in self.home.glob("jobs/*/events.jsonl")) < times
        ):
            assert time.monotonic() < deadline, f"no {times} worlds have run"
            time.sleep(0.05)

    def end(self) -> tuple[int, str, str]:
        """Exit code and what was left to read of both streams."""
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out, err


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def run(workplace: Path, home: Path) -> Iterator[object]:
    started: list[Run] = []

    def start(*arguments: str) -> Run:
        started.append(Run(workplace, home, *arguments))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            each.process.kill()
        each.process.communicate(timeout=DEADLINE)


def start(run: object, *arguments: str) -> Run:
    assert callable(run)
    made = run(*arguments)
    assert isinstance(made, Run)
    return made


def test_a_job_that_ends_well(run: object, workplace: Path, home: Path) -> None:
    (workplace / "go").touch()
    code, out, err = start(run, "--nnodes", "2", "--rdzv-backend=c10d", "train.py", "--lr", "0.1 2").end()
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"[{n}]: rank {n} of 2 ['--lr', '0.1 2']" for n in range(2)]
    assert err.count("[0]: a warning") == 1
    assert err.count("not needed: --rdzv-backend") == 1
    assert "generation 1.1: 2 members, 2 ranks" in err
    assert err.count(", rendezvous at ") == 1, "one line a generation"
    (events,) = home.glob("jobs/train/events.jsonl")
    for field in ('"restart_count": "0"', '"group_rank": "1"', '"global_ranks": "[1]"', '"world_size": "2"'):
        assert field in events.read_text()
    assert "train succeeded after" in err
    status = json.loads((home / "jobs" / "train" / "status.json").read_text())
    assert (status["phase"], status["exit_code"]) == ("succeeded", 0)


def test_a_killed_rank_is_told_and_the_job_goes_on(run: object, workplace: Path, home: Path) -> None:
    job = start(run, "--nnodes", "2", "--silent-after", "10", "train.py")
    job.runs()
    for generation in (2, 3):  # the second at once: the processes that were last reported are still those before
        done = subprocess.run(
            [sys.executable, "-P", "-m", "outrider", "chaos", "kill-process"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        job.until("WorkerExited.*was killed by SIGKILL")
        job.runs(generation)
    (workplace / "go").touch()
    code, out, err = job.end()
    assert code == 0, err
    assert "3 generations, 2 faults" in err
    assert out.count("rank 0 of 2") == 3


def test_a_script_that_fails_ends_with_its_own_traceback_and_code(run: object, workplace: Path) -> None:
    (workplace / "train.py").write_text("raise ValueError('the learning rate is negative')\n")
    code, _, err = start(run, "train.py").end()
    assert code == 1
    assert "JobFailed" in err
    assert "ValueError: the learning rate is negative" in err
    assert "line 1, in <module>" in err


def test_ctrl_c_ends_in_order_and_leaves_nothing(run: object, home: Path) -> None:
    job = start(run, "--nnodes", "2", "train.py")
    job.runs()
    job.process.send_signal(signal.SIGINT)
    job.until("SIGINT: stopping the job")
    code, _, err = job.end()
    assert code == 130
    assert "train stopped after" in err
    assert marked("OUTRIDER_DIR", str(home / "jobs" / "train" / "members" / "worker-0")) == []
    assert json.loads((home / "jobs" / "train" / "status.json").read_text())["phase"] == "stopped"


def test_under_nohup_a_closed_terminal_is_nothing_and_a_second_run_of_the_name_is_refused(
    run: object, workplace: Path
) -> None:
    heard = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does: it is inherited
    try:
        job = start(run, "--job", "one", "train.py")
    finally:
        signal.signal(signal.SIGHUP, heard)
    job.runs()
    job.process.send_signal(signal.SIGHUP)
    code, _, err = start(run, "--job", "one", "train.py").end()
    assert code == 2
    assert "job 'one' is already running (pid " in err
    (workplace / "go").touch()
    code, _, err = job.end()
    assert code == 0, err


@pytest.mark.exhaustive
def test_a_command_after_dashes_runs_once_a_member(run: object) -> None:
    code, out, err = start(run, "--nnodes", "2", "--", "sh", "-c", "echo node $NODE_RANK of $NNODES; exit 0").end()
    assert code == 0, err
    assert sorted(re.findall(r"node \d of 2", out)) == ["node 0 of 2", "node 1 of 2"]


def test_a_module_that_is_not_there_ends_the_job_in_its_first_generation(run: object) -> None:
    code, _, err = start(run, "-m", "no_such_package.train").end()
    assert code == 1
    assert "No module named 'no_such_package.train'; every rank fails at import the same way" in err
    assert "generation 1.1:" in err
    assert "generation 1.2:" not in err


@pytest.mark.exhaustive
def test_a_module_that_is_there_and_ends_with_1_is_not_taken_for_a_missing_one(run: object, workplace: Path) -> None:
    (workplace / "pack").mkdir()
    (workplace / "pack" / "train.py").write_text("import sys; sys.exit(1)")
    code, _, err = start(run, "--max-restarts", "0", "-m", "pack.train").end()
    assert code == 1
    assert "exited with code 1" in err
    assert "No module named" not in err


FILLING = """
import os, time
folder = os.path.dirname(os.path.dirname(os.environ["OUTRIDER_DIR"]))
os.mkdir(os.path.join(folder, "status.json.new"))
"""


@pytest.mark.parametrize("code", witnesses((0, 3), 3))
def test_a_folder_that_takes_no_status_at_the_end_does_not_change_the_jobs_exit_code(
    run: object, workplace: Path, home: Path, code: int
) -> None:
    (workplace / "train.py").write_text(f"{FILLING}raise SystemExit({code})")
    ended, _, err = start(run, "--max-restarts", "0", "--job", "full", "train.py").end()
    assert ended == code
    (warning,) = [line for line in err.splitlines() if "could not be written" in line]
    assert warning.startswith(f"outrider: the job ended with exit code {code}, but ")
