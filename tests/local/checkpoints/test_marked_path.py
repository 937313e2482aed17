"""Checkpoints in memory of a script that knows nothing of them: it saves by torch.save on rank 0, all ranks load. These
are further cases of the story in `test_elastic_data`."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.local import undisturbed
from tests.local.elastic import Run
from tests.local.scripts import handling, migrating_and_saving
from tests.local.training import DEADLINE, SAVE_EVERY, SCRIPT, Training, World, jobs

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    def begin(*flags: str, script: str = SCRIPT) -> Training:
        marked = ("--checkpoint-memory", "1Mi", "--checkpoint-path", str(tmp_path / "model.pt"))
        started.append(Training(tmp_path, home, *marked, *flags, script=script))
        return started[-1]

    with jobs() as (home, started):
        yield begin


def assert_undisturbed(world: World) -> None:
    """Each step has the loss that it has in a run to which nothing happens."""
    for steps in world.values():
        for step in steps:
            assert abs(step.loss - undisturbed.loss(step.step)) < undisturbed.SPREAD, step


def test_rank_0_crashes_and_every_rank_goes_on_from_the_newest_save(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "2")
    restart, _ = job.training(2, more=25)
    told = []
    for _ in range(3):
        mark = job.mark()
        job.event("CheckpointReplicated", 0, "save", "of the checkpoint path")
        _, world = job.now()
        os.kill(world[0][0].pid, signal.SIGKILL)
        restart, world = job.training(2, restart, more=15)
        assert world[0][0].loaded > 0
        told.append(job.event("CheckpointLoaded", mark, f"step {world[0][0].loaded}")["reason"])
        assert_undisturbed(world)
    assert any("from this member's memory" in each for each in told), told  # or a file: of a save that found no place
    job.end_well()


def test_the_member_of_rank_0_is_lost_and_its_replacement_goes_on_from_memory(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "3")
    restart, _ = job.training(3, more=25)
    job.event("CheckpointReplicated", 0)
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
    job.event("CheckpointReplicated", 0)
    mark = job.mark()
    job.signal_tree("worker-0", signal.SIGKILL)
    restart, world = job.training(2, restart, more=15)
    assert world[0][0].loaded > 0
    job.event("CheckpointLoaded", mark)  # from memory, or from a file that is newer: of a save that found no place
    assert_undisturbed(world)


def goes_on(job: Training, size: int, after: int) -> tuple[int, World]:
    """The next world begins with the newest save that there was, and none of its steps is another one."""
    restart, world = job.training(size, after, more=15)
    loaded = world[0][0].loaded
    made = max(step.step for step in job.steps() if step.restart == after)
    assert made - loaded <= SAVE_EVERY, job.told(0)
    assert_undisturbed(world)
    return restart, world


def test_a_world_is_made_smaller_and_greater_at_a_save(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "3:4")
    restart, _ = job.training(4, more=15)
    job.outrider("scale", "train", "3")
    restart, _ = goes_on(job, 3, restart)
    job.event("MemberGone", 0, "worker-3 is gone")  # until then the world would take it in again
    mark = job.mark()
    job.outrider("scale", "train", "4")
    goes_on(job, 4, restart)
    job.event("CheckpointReceived", mark, "worker-4 has save")
    job.event("CheckpointLoaded", mark)  # from memory, or a file that is newer
    job.end_well()


def test_a_handler_of_the_scripts_own_saves_to_the_marked_path(start: Callable[..., Training]) -> None:
    """The first time to storage, as there is no file yet, and then to memory."""
    job = start("--nnodes", "2", "--save-signal", "SIGUSR1", script=handling())
    job.most_lost = 1 << 60  # it saves when it is asked to, and trains on until it is stopped
    restart, _ = job.training(2)
    for _ in range(2):
        job.outrider("restart", "train", "--at-checkpoint")
        restart, world = job.training(2, restart, more=15)
        assert world[0][0].loaded == job.saved[-1]
        assert_undisturbed(world)
    job.outrider("stop", "train")
    assert job.process.wait(DEADLINE) == 0, job.log()
    job.steps()
    job.event("StateSaved", 0, f"model.pt at step {job.saved[-1]}, as requested by SIGUSR1")
    assert [len(job.saved), len(set(job.saved))] == [3, 3]


def test_a_script_that_registers_its_state_as_well_goes_on_from_what_is_newer(
    start: Callable[..., Training], tmp_path: Path
) -> None:
    job = start("--nnodes", "2", "--migration-dir", str(tmp_path / "volume"), script=migrating_and_saving())
    restart, _ = job.training(2, more=15)
    mark = job.mark()
    job.outrider("restart", "train", "--at-checkpoint")
    restart, world = goes_on(job, 2, restart)
    job.event("StateSaved", mark, f"of step {world[0][0].loaded} was saved")
    assert world[0][0].step == 1 + max(step.step for step in job.steps() if step.restart < restart)
    job.event("CheckpointReplicated", mark, "save")
    mark = job.mark()
    os.kill(world[0][0].pid, signal.SIGKILL)
    goes_on(job, 2, restart)
    job.event("CheckpointLoaded", mark)  # from memory, or from a file that is newer: of a save that found no place


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


def test_a_save_that_comes_before_the_others_have_the_one_before_it_is_an_ordinary_one(tmp_path: Path) -> None:
    path = tmp_path / "run" / "model.pt"
    job = Run(tmp_path / "run", "--nnodes", "2", "--checkpoint-memory", "1Mi", "--checkpoint-path", str(path))
    with contextlib.closing(job):
        job.hold_at(5)
        job.until_held(5, 2)
        job.event("CheckpointReplicated", 0, "(step 3)")
        deaf = job.sidecar("worker-1")
        os.kill(deaf, signal.SIGSTOP)
        job.hold_at(12)
        job.event("MemoryCheckpointFailed", 0, "it was written to storage directly")
        os.kill(deaf, signal.SIGCONT)
        job.until_held(12, 2)
        import torch  # takes seconds, and no other test here needs it

        assert torch.load(path)["step"] == 9
        job.finished()
