"""Real hangs of a real job: one rank is stopped, one leaves a collective out, one is busy in C and holds the GIL."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.local.chapters import live_through
from tests.local.scripts import calm
from tests.local.training import SCRIPT, Training, kill, members, one_job, pids, until

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


def begins_again(job: Training, restart: int, mark: int, *words: str) -> dict[str, Any]:
    """The event that names the hang; the job trains on from its last checkpoint."""
    event = job.event("HangDetected", mark, *words)
    job.training(SIZE, after=restart)
    return event


def a_rank_is_stopped(job: Training) -> None:
    restart, world = job.training(SIZE, more=30)
    mark = job.mark()
    kill(pids(world)[1], signal.SIGSTOP)
    event = begins_again(job, restart, mark, "rank 1 on", "is stopped (SIGSTOP, or a debugger); ", " in gloo:")
    assert event["member"] == members(world)[1]
    assert "HangSuspected" in job.told(mark)


def a_rank_does_not_come_to_a_collective_and_is_named_with_its_line(job: Training) -> None:
    restart, world = job.training(SIZE, more=30)
    mark = job.mark()
    job.order(2, "[time.sleep(0.1) for _ in iter(int, 1)]")
    event = begins_again(
        job, restart, mark, "rank 2 on", "has not entered gloo:barrier number", "in which 2 ranks wait"
    )
    assert event["member"] == members(world)[2]
    assert event["reason"].count("train.py:") == 2


def a_rank_leaves_a_collective_out_and_is_known_by_the_next_one(job: Training) -> None:
    """It waits in its number 97, which for the others is the one that it has left out."""
    restart, world = job.training(SIZE, more=30)
    mark = job.mark()
    job.order(0, SKIP)
    event = begins_again(job, restart, mark, "rank 0 on", "in gloo:all_reduce number", "in gloo:barrier number")
    assert event["member"] == members(world)[0]


def a_rank_is_busy_in_c_and_holds_the_gil(job: Training) -> None:
    holds_the_gil(job, "sum(range(10 ** 13))")


def a_rank_waits_in_c_and_holds_the_gil(job: Training) -> None:
    """For a mutex that it holds itself: no signal ends this wait."""
    holds_the_gil(
        job,
        "import ctypes; lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64); "
        "lock(mutex); lock(mutex)",
    )


def holds_the_gil(job: Training, order: str) -> None:
    """The rank is known by its stack, and replaced as it was to blame before."""
    restart, world = job.training(SIZE, more=30)
    mark, victim = job.mark(), members(world)[0]
    job.order(0, order)
    event = job.event(
        "HangDetected", mark, "rank 0 on", "does not report its collectives, while 2 ranks wait in gloo:barrier"
    )
    assert event["member"] == victim
    job.event("MemberFailed", mark, victim, "caused a hang before")
    _, new = job.training(SIZE, after=restart)
    assert victim not in members(new)


def a_new_master_finds_a_hang(job: Training) -> None:
    restart, world = job.training(SIZE, more=30)
    mark = job.mark()
    kill(pids(world)[1], signal.SIGSTOP)  # rank 0 may be in a save, which has ten minutes
    kill(job.master())
    job.event("GenerationAdopted", mark)
    begins_again(job, restart, mark, "is stopped")


def an_evaluation_that_says_so_is_no_hang(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    job.order(0, f"torch.nn.Linear(1, 1).eval(); time.sleep({1.5 * float(LIMIT)})")
    job.training(SIZE, more=len(world[0]) + 60)
    again, same = job.now()
    assert (again, pids(same)) == (restart, pids(world))
    assert "HangSuspected" not in job.told(mark)


def a_slow_save_is_no_hang(job: Training) -> None:
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


FLAGS = ("--max-restarts", "100", "--hang-after", LIMIT)


def test_a_hang_is_found_its_culprit_named_and_replaced_when_it_is_to_blame_again(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """All three ranks are one member's."""
    with one_job(tmp_path, "--nproc-per-node", str(SIZE), *FLAGS, script=calm(WITH_A_BARRIER)) as job:
        live_through(
            subtests,
            job,
            an_evaluation_that_says_so_is_no_hang,
            a_rank_does_not_come_to_a_collective_and_is_named_with_its_line,
            a_rank_waits_in_c_and_holds_the_gil,
        )
        job.end_well()


@pytest.mark.exhaustive
def test_hangs_of_three_members(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with one_job(tmp_path, "--nnodes", str(SIZE), *FLAGS, script=WITH_A_BARRIER) as job:
        live_through(
            subtests,
            job,
            a_rank_is_stopped,
            a_rank_does_not_come_to_a_collective_and_is_named_with_its_line,
            a_rank_leaves_a_collective_out_and_is_known_by_the_next_one,
            a_rank_is_busy_in_c_and_holds_the_gil,
            a_new_master_finds_a_hang,
            an_evaluation_that_says_so_is_no_hang,
            a_slow_save_is_no_hang,
        )
        job.end_well()


@pytest.mark.exhaustive
def test_a_rank_that_never_comes_to_the_rendezvous_is_named(tmp_path: Path) -> None:
    with one_job(tmp_path, "--nnodes", "2", "--hang-after", f"init={LIMIT}", script=STUCK_AT_FIRST) as training:
        event = training.event("HangDetected", 0, "phase init, limit 8.0 s", "rank 1 on worker-1", "train.py:")
        assert event["member"] == "worker-1"
        training.training(2)
        training.end_well()


@pytest.mark.exhaustive
def test_where_no_limit_is_given_a_stopped_rank_is_ended_beyond_doubt(tmp_path: Path) -> None:
    with one_job(tmp_path, "--nnodes", "2", script=WITH_A_BARRIER) as job:
        restart, world = job.training(2, more=30)
        mark = job.mark()
        kill(pids(world)[1], signal.SIGSTOP)
        job.event("HangDetected", mark, "rank 1 on", "is stopped (SIGSTOP, or a debugger); 1 other rank waits in gloo:")
        assert "HangSuspected" not in job.told(mark), "nobody waited for the limit of a step"
        job.training(2, after=restart)
