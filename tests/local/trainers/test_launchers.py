"""Launchers that users have already, behind `outrider run --`: what their ranks see, one killed, and how the job ends.

Each is one real job of two members. A rank appends a line with what it sees to `ranks.txt` and waits for the file `go`;
so a generation is complete when all its lines are there, and no test depends on how long anything takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.runtime.processes import marked
from tests.lines import whole_lines
from tests.tiers import witnesses

pytestmark = pytest.mark.slow
DEADLINE = 120.0
OUTRIDER = (sys.executable, "-P", "-E", "-m", "outrider")

TRAIN = """
import json, os, sys, time
names = ["OUTRIDER_GENERATION", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS"]
names += ["TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "ACCELERATE_MIXED_PRECISION"]
seen = {name: os.environ.get(name) for name in names}
seen.update(arguments=sys.argv[1:], name=__name__, ours=[n for n in os.environ if n.startswith("OUTRIDER_TEMPL")])
with open("ranks.txt", "a") as file:
    file.write(json.dumps(seen) + "\\n")
while not os.path.exists("go"):
    time.sleep(0.01)
"""
SHELL_TRAINER = """#!/bin/sh
printf '{"OUTRIDER_GENERATION": "%s", "NODE_RANK": "%s", "NNODES": "%s", "RANK": "%s", "arguments": ["%s"]}\\n' \\
    "$OUTRIDER_GENERATION" "$NODE_RANK" "$NNODES" "$RANK" "$1" >> ranks.txt
until [ -e go ]; do sleep 0.05; done
"""
Seen = dict[str, Any]


class Job:
    """One `outrider run` in a folder of its own, its output in files."""

    def __init__(self, folder: Path, home: Path, *arguments: str) -> None:
        self.folder, self.home = folder, home
        (folder / "train.py").write_text(TRAIN)
        (folder / "trainer.sh").write_text(SHELL_TRAINER)
        (folder / "trainer.sh").chmod(0o755)
        here = Path(sys.executable).parent  # as in an activated virtual environment
        path = f"{here}:{os.environ['PATH']}"
        self.environment = dict(os.environ, OUTRIDER_HOME=str(home), PATH=path, VIRTUAL_ENV=str(here.parent))
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [*OUTRIDER, "run", "--job", "launched", "--silent-after", "10", *arguments],
                cwd=folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def said(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    def until(self, claim: Callable[[], bool]) -> None:
        limit = time.monotonic() + DEADLINE
        while not claim():
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.said()}"
            assert time.monotonic() < limit, self.said()
            time.sleep(0.05)

    def ranks(self, generation: str, count: int) -> list[Seen]:
        """What the ranks of a generation have seen, once that many have written it; sorted."""
        self.until(lambda: len(self._lines(generation)) == count)
        return self._lines(generation)

    def _lines(self, generation: str) -> list[Seen]:
        rows = map(json.loads, whole_lines(self.folder / "ranks.txt"))
        found = [row for row in rows if row["OUTRIDER_GENERATION"] == generation]
        return sorted(found, key=lambda row: (row["RANK"], row.get("NODE_RANK", "")))

    def command(self, *arguments: str) -> str:
        done = subprocess.run(
            [*OUTRIDER, *arguments], env=self.environment, capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.command("status", "launched", "--json"))
        return found

    def kill_a_rank(self) -> None:
        """One of a running world, as a user would try it."""
        self.until(lambda: self.status()["phase"] == "running")
        self.command("chaos", "kill-process", "launched")

    def ends(self) -> int:
        """Lets the ranks end; the command's exit code."""
        (self.folder / "go").touch()
        return self.process.wait(DEADLINE)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    started: list[Job] = []
    home = Path(tempfile.mkdtemp(prefix="or-"))

    def start(*arguments: str) -> Job:
        started.append(Job(tmp_path, home, *arguments))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            each.process.terminate()
        try:
            each.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()
        assert marked("OUTRIDER_DIR", str(home / "jobs" / "launched" / "members" / "worker-0")) == []
    shutil.rmtree(home)


def values(rows: list[Seen], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


PLACES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
TWO_BY_TWO = [
    ("0", "0", "4", "2", "0"),
    ("1", "1", "4", "2", "0"),
    ("2", "0", "4", "2", "1"),
    ("3", "1", "4", "2", "1"),
]


def test_torchrun_keeps_its_flags_and_its_scripts_arguments(job: Callable[..., Job]) -> None:
    running = job("--nnodes", "2", "--", "torchrun", "--nproc-per-node", "2", "train.py", "--lr", "0.1", "a b")
    first = running.ranks("1.1", 4)
    assert values(first, *PLACES) == TWO_BY_TWO
    assert {tuple(row["arguments"]) for row in first} == {("--lr", "0.1", "a b")}
    assert (
        values(first, "OMP_NUM_THREADS", "TORCHELASTIC_RESTART_COUNT", "name", "ours")
        == [(str(max(1, len(os.sched_getaffinity(0)) // 4)), "0", "__main__", [])] * 4
    )
    assert {member["mode"] for member in running.status()["members"]} == {"fork"}
    running.kill_a_rank()
    assert values(running.ranks("1.2", 4), *PLACES, "TORCHELASTIC_RESTART_COUNT") == [(*row, "1") for row in TWO_BY_TWO]
    assert running.ends() == 0
    assert "was killed by SIGKILL" in running.said()


@pytest.mark.exhaustive
def test_torchrun_in_a_shells_line_with_a_process_beside_it(job: Callable[..., Job]) -> None:
    line = "(sleep 1000 &) && torchrun --nproc_per_node=2 --rdzv-backend=c10d --max_restarts=3 train.py 'a b'"
    running = job("--nnodes", "2", "--", "bash", "-c", line)
    first = running.ranks("1.1", 4)
    assert values(first, *PLACES) == TWO_BY_TWO
    assert values(first, "arguments", "TORCHELASTIC_MAX_RESTARTS") == [(["a b"], "3")] * 4
    assert {member["mode"] for member in running.status()["members"]} == {"fork"}
    running.kill_a_rank()
    assert values(running.ranks("1.2", 4), *PLACES) == TWO_BY_TWO
    assert running.ends() == 0
    assert running.said().count("--rdzv-backend") == 1


@pytest.mark.exhaustive
def test_a_shells_line_with_a_script_of_one_process_is_run_anew_with_the_worlds_variables(
    job: Callable[..., Job],
) -> None:
    running = job("--nnodes", "2", "--", "bash", "-c", "python train.py 'a b'; exit $?")
    expected = [(str(rank), "0", "2", "1", str(rank), ["a b"]) for rank in (0, 1)]
    assert values(running.ranks("1.1", 2), *PLACES, "arguments") == expected
    assert {member["mode"] for member in running.status()["members"]} == {"relaunch"}
    running.kill_a_rank()
    assert values(running.ranks("1.2", 2), *PLACES, "arguments") == expected
    assert running.ends() == 0


def test_a_program_that_is_no_python_runs_once_a_member(job: Callable[..., Job]) -> None:
    running = job("--nnodes", "2", "--", "./trainer.sh", "a b")
    names = ("RANK", "NODE_RANK", "NNODES", "arguments")
    expected = [("0", "0", "2", ["a b"]), ("1", "1", "2", ["a b"])]
    assert values(running.ranks("1.1", 2), *names) == expected
    assert {member["mode"] for member in running.status()["members"]} == {"relaunch"}
    running.kill_a_rank()
    assert values(running.ranks("1.2", 2), *names) == expected
    assert running.ends() == 0


@pytest.mark.exhaustive
def test_a_program_with_a_launcher_of_its_own_runs_once_a_member_and_is_told_how_many(job: Callable[..., Job]) -> None:
    running = job("--nnodes", "2", "--nproc-per-node", "2", "--", "./trainer.sh")
    assert values(running.ranks("1.1", 2), "RANK", "NODE_RANK", "NNODES") == [("", "0", "2"), ("", "1", "2")]
    running.kill_a_rank()
    assert len(running.ranks("1.2", 2)) == 2
    assert running.ends() == 0


@pytest.mark.exhaustive
def test_no_python_runs_a_program_once_a_local_rank(job: Callable[..., Job]) -> None:
    running = job("--nnodes", "2", "--nproc-per-node", "2", "--no-python", "./trainer.sh", "a b")
    expected = [(str(rank), ["a b"]) for rank in range(4)]
    assert values(running.ranks("1.1", 4), "RANK", "arguments") == expected
    running.kill_a_rank()
    assert values(running.ranks("1.2", 4), "RANK", "arguments") == expected
    assert running.ends() == 0


@pytest.mark.exhaustive
def test_torchruns_no_python_runs_a_program_once_a_local_rank(job: Callable[..., Job]) -> None:
    running = job("--nnodes", "2", "--", "torchrun", "--nproc-per-node=2", "--no-python", "./trainer.sh", "a b")
    expected = [(str(rank), ["a b"]) for rank in range(4)]
    assert values(running.ranks("1.1", 4), "RANK", "arguments") == expected
    running.kill_a_rank()
    assert values(running.ranks("1.2", 4), "RANK", "arguments") == expected
    assert running.ends() == 0


@pytest.mark.exhaustive
def test_the_legacy_launch_module_with_and_without_its_argument(job: Callable[..., Job]) -> None:
    launch = ("python", "-m", "torch.distributed.launch", "--nproc_per_node=2")
    running = job("--nnodes", "2", "--", *launch, "train.py", "--lr=1")
    expected = [[f"--local-rank={rank}", "--lr=1"] for rank in (0, 1, 0, 1)]
    assert [row["arguments"] for row in running.ranks("1.1", 4)] == expected
    running.kill_a_rank()
    assert [row["arguments"] for row in running.ranks("1.2", 4)] == expected
    assert running.ends() == 0


@pytest.mark.exhaustive
def test_the_legacy_launch_module_with_use_env(job: Callable[..., Job]) -> None:
    running = job("--", "python", "-m", "torch.distributed.launch", "--use-env", "--nproc_per_node=2", "train.py", "x")
    assert values(running.ranks("1.1", 2), "LOCAL_RANK", "arguments") == [("0", ["x"]), ("1", ["x"])]
    assert running.ends() == 0


@pytest.mark.exhaustive
def test_accelerate_on_one_process_makes_its_script_the_trainer(job: Callable[..., Job]) -> None:
    pytest.importorskip("accelerate")
    running = job("--nnodes", "2", "--", "accelerate", "launch", "--cpu", "accelerated.py", "--lr", "a b")
    _accelerated(running, ranks=2)


@pytest.mark.exhaustive
def test_accelerates_way_through_torchs_launcher_is_taken_over(job: Callable[..., Job]) -> None:
    pytest.importorskip("accelerate")
    launch = ("accelerate", "launch", "--multi_gpu", "--num_processes", "2", "accelerated.py", "--lr", "a b")
    _accelerated(job("--nnodes", "2", "--", *launch), ranks=4)


ACCELERATED = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == int(os.environ["WORLD_SIZE"]), accelerator.num_processes
accelerator.wait_for_everyone()
"""


def _accelerated(running: Job, ranks: int) -> None:
    imports, _, rest = TRAIN.strip().partition("\n")
    (running.folder / "accelerated.py").write_text(f"{imports}\n{ACCELERATED}{rest}\n")
    for generation in ("1.1", "1.2"):
        rows = running.ranks(generation, ranks)
        assert values(rows, "RANK", "arguments", "ACCELERATE_MIXED_PRECISION") == [
            (str(rank), ["--lr", "a b"], "no") for rank in range(ranks)
        ]
        if generation == "1.1":
            assert {member["mode"] for member in running.status()["members"]} == {"fork"}
            running.kill_a_rank()
    assert running.ends() == 0, running.said()


TWICE = [
    ("--nnodes 2", "--nnodes 4"),
    ("--nproc-per-node 2", "--nproc_per_node=4"),
    ("--max-restarts 2", "--max-restarts 0"),
]


@pytest.mark.parametrize("shell", witnesses([False, True], False), ids=["torchrun", "in a shell's line"])
@pytest.mark.parametrize(("ours", "theirs"), witnesses(TWICE, TWICE[1]))
def test_a_size_said_twice_in_two_ways_starts_nothing_and_shows_both(
    tmp_path: Path, ours: str, theirs: str, shell: bool
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = ["torchrun", *theirs.split(), "train.py"]
    done = subprocess.run(
        [*OUTRIDER, "run", *ours.split(), "--", *(["bash", "-c", " ".join(command)] if shell else command)],
        cwd=tmp_path,
        env=dict(os.environ, OUTRIDER_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 2
    flag, value = ours.split()
    assert f"{flag} {value}: must equal" in done.stderr
    assert f"{flag} {theirs[-1]} of {'bash' if shell else 'torchrun'}" in done.stderr
    assert not (tmp_path / "jobs").exists() or not list((tmp_path / "jobs").iterdir())
