"""Checkpoints in memory in real jobs: the script of the other tests saves nothing to disk, and goes on all the same.

These are further cases: one job in `make test` has its checkpoints in memory alone (`test_stragglers`), and one on a
marked path (`test_elastic_data`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.sidecar.shell.arena import copies
from tests.local.scripts import in_shards, remembering
from tests.local.training import DEADLINE, SAVE_EVERY, Training, jobs, members, until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    def begin(*flags: str, script: str) -> Training:
        started.append(Training(tmp_path, home, *flags, script=script))
        return started[-1]

    with jobs() as (home, started):
        yield begin


def test_after_a_crash_all_ranks_go_on_from_their_members_memory(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "2", "--checkpoint-memory", "1Mi", script=remembering())
    restart, _ = job.training(2, more=25)
    for _ in range(2):
        mark = job.mark()
        _, world = job.now()
        os.kill(world[1][0].pid, signal.SIGKILL)
        restart, world = job.training(2, restart, more=15)
        assert world[0][0].loaded > 0
        job.event("CheckpointLoaded", mark, f"loads step {world[0][0].loaded} from this member's memory")


@pytest.mark.parametrize("sharded", [False, True], ids=["replicated", "sharded"])
def test_a_member_that_is_replaced_is_given_what_the_others_have_in_memory(
    start: Callable[..., Training], sharded: bool
) -> None:
    script = in_shards(remembering()) if sharded else remembering()
    job = start("--nnodes", "3", "--checkpoint-memory", "2Mi", script=script)
    if sharded:
        job.most_lost = 4 * SAVE_EVERY  # ranks do not wait until others have their parts
    restart, _ = job.training(3, more=25)
    mark = job.mark()
    job.event("CheckpointReplicated", 0)
    job.signal_tree("worker-1", signal.SIGKILL)
    restart, world = job.training(3, restart, more=15)
    first = {steps[0].loaded for steps in world.values()}
    assert len(first) == 1
    assert first.pop() > 0
    job.event("CheckpointSent", mark, "from the memory of worker-2" if sharded else "from the memory of worker-0")
    job.event("CheckpointReceived", mark, "worker-3 has the checkpoint of step")
    job.event("CheckpointLoaded", mark, "from this member's memory")


def test_neighbours_are_lost_one_after_the_other_and_the_only_save_there_ever_was_is_still_loaded(
    start: Callable[..., Training],
) -> None:
    script = in_shards(remembering()).replace("if step % EVERY == 0:", "if step == EVERY:")
    job = start("--nnodes", "3", "--checkpoint-memory", "2Mi", script=script)
    job.most_lost = 1 << 60
    restart, _ = job.training(3, more=25)
    job.event("CheckpointReplicated", 0)
    for lost, new in (("worker-1", "worker-3"), ("worker-2", "worker-4"), ("worker-0", "worker-5")):
        job.signal_tree(lost, signal.SIGKILL)
        restart, world = job.training(3, restart, more=5)
        assert {steps[0].loaded for steps in world.values()} == {SAVE_EVERY}
        memory = job.job_folder / "members" / new / "checkpoints"
        until(lambda memory=memory: any(copy.held for copy in copies(memory)), job.story)


def test_a_second_member_that_is_lost_while_the_first_one_is_replaced_costs_the_newest_version_at_most(
    start: Callable[..., Training],
) -> None:
    job = start("--nnodes", "3", "--checkpoint-memory", "1Mi", script=remembering())
    restart, _ = job.training(3, more=25)
    mark = job.mark()
    job.signal_tree("worker-1", signal.SIGKILL)
    job.event("CheckpointSent", mark, "worker-3")
    job.signal_tree("worker-2", signal.SIGKILL)
    restart, world = job.training(3, restart, more=15)
    while "worker-2" in members(world):
        restart, world = job.training(3, restart, more=15)
    assert world[0][0].loaded > 0
    job.event("CheckpointReceived", mark, "worker-4")


def test_memory_that_is_not_there_is_named_at_the_start(start: Callable[..., Training]) -> None:
    job = start("--nnodes", "1", "--checkpoint-memory", "900Ti", "--max-restarts", "1", script=remembering())
    assert job.process.wait(DEADLINE) != 0
    assert "the checkpoint memory (checkpointMemory, 921600.0 GiB) cannot be reserved" in job.log()
