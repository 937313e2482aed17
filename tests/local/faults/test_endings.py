"""How a job ends that cannot go on or must not: by its script's own words, by the user's will, or with its command."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.runtime.processes import is_alive
from tests.local.training import DEADLINE, Training, kill, until
from tests.tiers import witnesses

pytestmark = pytest.mark.slow
Start = Callable[..., Training]

BEATING = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
(folder / ("up-" + os.environ["RANK"] + "-" + os.environ["TORCHELASTIC_RESTART_COUNT"])).touch()
while not (folder / "end").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    jobs: list[Training] = []

    def begin(script: str, *flags: str) -> Training:
        jobs.append(Training(tmp_path, home, "--nnodes", "2", *flags, script=script))
        return jobs[-1]

    try:
        yield begin
    finally:
        for job in jobs:
            job.close()
        shutil.rmtree(home)


def up(job: Training, restart: int = 0) -> None:
    wanted = [job.folder / f"up-{rank}-{restart}" for rank in range(2)]
    until(lambda: all(path.exists() for path in wanted), job.story)


@pytest.mark.exhaustive
def test_one_member_that_fails_at_import_once_is_one_fault(start: Start) -> None:
    once = 'if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": import no_such_module\n'
    job = start("import os\n" + once + BEATING)
    job.event("WorkerExited", 0, "Rank 1", "no_such_module")
    up(job, restart=1)
    job.end_well()


def test_one_rank_that_always_fails_the_same_way_is_a_crash_loop(start: Start) -> None:
    job = start('import os\nif os.environ["RANK"] == "1": raise ValueError("a bad shard")\n' + BEATING)
    assert job.process.wait(DEADLINE) == 1, job.story()
    failed = job.event("JobFailed", 0, "ValueError: a bad shard", "3 generations")
    assert 'raise ValueError("a bad shard")' in str(failed["detail"])
    assert job.status()["restarts"] == 2
    assert job.left() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("script", "error"), [("import no_such_module\n", "ModuleNotFoundError"), ("def f(:\n", "SyntaxError")]
)
def test_a_script_that_no_rank_can_import_ends_the_job_at_once(start: Start, script: str, error: str) -> None:
    job = start(script)
    assert job.process.wait(DEADLINE) == 1, job.story()
    job.event("JobFailed", 0, error)
    assert job.status()["restarts"] <= 2, "none where all are heard within a second, else a crash loop"
    assert error in job.log()
    assert job.left() == []


@pytest.mark.exhaustive
def test_a_script_that_vanishes_before_it_is_run_ends_the_job(start: Start) -> None:
    job = start(BEATING)
    job.script.unlink()
    assert job.process.wait(DEADLINE) not in (0, None), job.story()
    assert str(job.script) in job.log()
    assert job.left() == []


def test_ctrl_c_twice_ends_at_once_what_does_not_want_to_end(start: Start) -> None:
    job = start("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + BEATING)
    up(job)
    job.process.send_signal(signal.SIGINT)
    until(lambda: "SIGINT: stopping the job" in job.log(), job.log)
    job.process.send_signal(signal.SIGINT)
    assert job.process.wait(DEADLINE) == 130, job.log()
    assert job.left() == []


@pytest.mark.parametrize("with_it", witnesses(["nothing else", "master", "sidecar", "template", "rank"], "master"))
def test_nothing_outlives_the_command_and_any_one_more(start: Start, with_it: str) -> None:
    job = start(BEATING)
    up(job)
    victims = [job.process.pid]
    match with_it:
        case "master":
            victims.append(job.master())
        case "sidecar":
            victims.append(job.sidecar("worker-0"))
        case "template":
            victims.append(job.template("worker-1"))
        case "rank":
            victims += until(lambda: job.member("worker-0")["pids"]["workers"])
    everything = job.left()
    assert len(everything) >= 7
    for pid in reversed(victims):
        kill(pid)
    job.process.wait(DEADLINE)
    until(lambda: not any(map(is_alive, [*everything, *job.left()])), lambda: f"{job.left()} to end")
