"""Real hangs of a real job: one rank is stopped, one leaves a collective out, one is busy in C and holds the GIL."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.training import SCRIPT, Training, kill, members, pids, until

pytestmark = pytest.mark.slow
SIZE = 3
LIMIT = "8"
WITH_A_BARRIER = SCRIPT.replace(
    "        obey(rank)\n", "        if step % EVERY == 0:\n            obey(rank)\n        dist.barrier()\n"
)
"""Right behind a save, when more of the same checkpoint may come."""
SKIP = "dist.barrier = lambda *_, real=dist.barrier: setattr(dist, 'barrier', real)"
"""The next barrier is left out by this rank."""


STUCK_AT_FIRST = SCRIPT.replace(
    "def main():\n",
    """def main():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
        time.sleep(1e6)
""",
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    training = Training(
        tmp_path_factory.mktemp("three"), home, "--nnodes", str(SIZE), "--max-restarts", "100", "--silent-after", "10",
        "--hang-after", LIMIT, script=WITH_A_BARRIER,
    )  # fmt: skip
    try:
        yield training
    finally:
        training.close()
        shutil.rmtree(home)


def begins_again(job: Training, restart: int, mark: int, *words: str) -> dict[str, Any]:
    """The event that names the hang; the job trains on from its last checkpoint."""
    event = job.event("RanksHang", mark, *words)
    job.training(SIZE, after=restart)
    return event


def test_a_rank_that_is_stopped_is_named_and_all_begin_again(job: Training) -> None:
    restart, world = job.training(SIZE, more=30)
    mark = job.mark()
    kill(pids(world)[1], signal.SIGSTOP)
    event = begins_again(job, restart, mark, "rank 1 on", "is stopped (SIGSTOP, or a debugger); ", " in gloo:")
    assert event["member"] == members(world)[1]
    assert "HangSuspected" in job.told(mark)


def test_a_rank_that_does_not_come_to_a_collective_is_named_with_its_line(job: Training) -> None:
    restart, world = job.training(SIZE, more=30)
    mark = job.mark()
    job.order(2, "[time.sleep(0.1) for _ in iter(int, 1)]")
    event = begins_again(job, restart, mark, "rank 2 on", "has not come to gloo:barrier number", "in which 2 wait")
    assert event["member"] == members(world)[2]
    assert event["reason"].count("train.py:") == 2


def test_a_rank_that_leaves_a_collective_out_is_known_by_the_next_one(job: Training) -> None:
    """It waits in its number 97, which for the others is the one that it has left out."""
    restart, world = job.training(SIZE, more=30)
    mark = job.mark()
    job.order(0, SKIP)
    event = begins_again(job, restart, mark, "rank 0 on", "in gloo:all_reduce number", "in gloo:barrier number")
    assert event["member"] == members(world)[0]


def test_a_rank_that_is_busy_in_c_and_holds_the_gil_is_known_by_its_stack_and_replaced_as_it_was_to_blame_before(
    job: Training,
) -> None:
    restart, world = job.training(SIZE, more=30)
    mark, victim = job.mark(), members(world)[0]
    job.order(0, "sum(range(10 ** 13))")
    event = job.event("RanksHang", mark, "rank 0 on", "cannot say where it is, while 2 wait in gloo:barrier")
    assert event["member"] == victim
    job.event("MemberFailed", mark, victim, "was to blame for a hang before")
    _, new = job.training(SIZE, after=restart)
    assert victim not in members(new)


def test_a_hang_that_a_new_master_finds_is_ended_too(job: Training) -> None:
    restart, world = job.training(SIZE, more=30)
    mark = job.mark()
    kill(pids(world)[1], signal.SIGSTOP)  # rank 0 may be in a save, which has ten minutes
    kill(job.master())
    job.event("GenerationAdopted", mark)
    begins_again(job, restart, mark, "is stopped")


def test_an_evaluation_that_says_so_is_no_hang(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    job.order(0, f"torch.nn.Linear(1, 1).eval(); time.sleep({1.5 * float(LIMIT)})")
    job.training(SIZE, more=len(world[0]) + 60)
    again, same = job.now()
    assert (again, pids(same)) == (restart, pids(world))
    assert "HangSuspected" not in job.told(mark)


def test_a_slow_save_is_no_hang_and_the_job_ends_well(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark, slow, saving = job.mark(), job.folder / "slow", job.folder / "saving"
    slow.touch()
    until(saving.exists, job.story)
    over = time.monotonic() + 1.5 * float(LIMIT)
    until(lambda: time.monotonic() > over, "a save that takes longer than a step may")
    slow.unlink()
    saving.unlink(missing_ok=True)
    made = len(world[0])
    until(lambda: len(job.now()[1][0]) > made + 50, job.story)
    again, same = job.now()
    assert (again, pids(same)) == (restart, pids(world))
    assert "HangSuspected" not in job.told(mark)
    job.end_well()


def test_a_rank_that_never_comes_to_the_rendezvous_is_named(tmp_path: Path) -> None:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    training = Training(
        tmp_path, home, "--nnodes", "2", "--silent-after", "10", "--hang-after", f"init={LIMIT}", script=STUCK_AT_FIRST
    )
    try:
        event = training.event("RanksHang", 0, "in its init, which may take 8.0 s", "rank 1 on worker-1", "train.py:")
        assert event["member"] == "worker-1"
        training.training(2)
        training.end_well()
    finally:
        training.close()
        shutil.rmtree(home)


def test_where_no_limit_is_given_a_stopped_rank_is_ended_beyond_doubt(tmp_path: Path) -> None:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    job = Training(tmp_path, home, "--nnodes", "2", "--silent-after", "10", script=WITH_A_BARRIER)
    try:
        restart, world = job.training(2, more=30)
        mark = job.mark()
        kill(pids(world)[1], signal.SIGSTOP)
        job.event("RanksHang", mark, "rank 1 on", "is stopped (SIGSTOP, or a debugger); 1 other waits in gloo:")
        assert "HangSuspected" not in job.told(mark), "nobody waited for the limit of a step"
        job.training(2, after=restart)
    finally:
        job.close()
        shutil.rmtree(home)
