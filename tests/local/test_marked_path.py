"""Checkpoints in memory of a script that knows nothing of them: it saves by torch.save on rank 0, all ranks load."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.local import undisturbed
from tests.local.training import SAVE_EVERY, SCRIPT, Training, World, until

pytestmark = pytest.mark.slow


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    started: list[Training] = []

    def begin(*flags: str, script: str = SCRIPT) -> Training:
        marked = ("--checkpoint-memory", "1Mi", "--checkpoint-path", str(tmp_path / "model.pt"))
        started.append(Training(tmp_path, home, *marked, *flags, script=script))
        return started[-1]

    try:
        yield begin
    finally:
        for job in started:
            job.close()
        shutil.rmtree(home)


def assert_undisturbed(world: World) -> None:
    """Each step has the loss that it has in a run to which nothing happens."""
    for steps in world.values():
        for step in steps:
            assert abs(step.loss - undisturbed.loss(step.step)) < undisturbed.SPREAD, step


def old_file(job: Training) -> Path:
    """The first checkpoint as it lies on storage, with what tells its version."""
    path = job.folder / "model.pt"
    until(path.exists, job.story)
    return path


def test_rank_0_crashes_and_every_rank_goes_on_from_the_newest_save(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "2")
    restart, _ = job.training(2, more=25)
    for _ in range(3):
        mark = job.mark()
        job.event("CheckpointKept", 0, "save", "of the marked path")
        _, world = job.now()
        os.kill(world[0][0].pid, signal.SIGKILL)
        restart, world = job.training(2, restart, more=15)
        assert world[0][0].loaded > 0
        job.event("CheckpointLoaded", mark, f"(step {world[0][0].loaded})", "from this member's memory")
        assert_undisturbed(world)
    job.end_well()


def test_the_member_of_rank_0_is_lost_and_its_replacement_goes_on_from_memory(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "3")
    restart, _ = job.training(3, more=25)
    job.event("CheckpointKept", 0)
    mark = job.mark()
    job.signal_tree("worker-0", signal.SIGKILL)
    restart, world = job.training(3, restart, more=15)
    assert len({steps[0].loaded for steps in world.values()}) == 1
    assert world[0][0].loaded > 0
    job.event("CheckpointReceived", mark, "worker-3 has save")
    assert_undisturbed(world)


def test_a_world_that_shrinks_goes_on_from_memory_too(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "2:3", "--max-relaunches", "0")
    restart, _ = job.training(3, more=25)
    job.event("CheckpointKept", 0)
    mark = job.mark()
    job.signal_tree("worker-0", signal.SIGKILL)
    restart, world = job.training(2, restart, more=15)
    assert world[0][0].loaded > 0
    job.event("CheckpointLoaded", mark, "from this member's memory")
    assert_undisturbed(world)


def test_one_member_with_two_ranks(start: Callable[..., Training]) -> None:
    job = start("--nproc-per-node", "2")
    restart, _ = job.training(2, more=25)
    _, world = job.now()
    os.kill(world[0][0].pid, signal.SIGKILL)
    restart, world = job.training(2, restart, more=15)
    assert world[0][0].loaded >= SAVE_EVERY
    assert_undisturbed(world)


def test_a_kill_at_any_moment_leaves_all_ranks_on_one_version(start: Callable[..., Training]) -> None:
    """A save in each step: whatever rank 0 is doing, and whoever is being given something."""
    job = start(
        "--nnodes",
        "3",
        "--max-restarts",
        "100",
        script=SCRIPT.replace("EVERY, VERSION = Path(sys.argv[1]), 10", "EVERY, VERSION = Path(sys.argv[1]), 1"),
    )
    restart = -1
    for number in range(8):
        restart, world = job.training(3, restart, more=3 + number)
        assert_undisturbed(world)
        _, world = job.now()
        os.kill(world[0 if number % 3 else 1][0].pid, signal.SIGKILL)
    job.training(3, restart, more=5)
