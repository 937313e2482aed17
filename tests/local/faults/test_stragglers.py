"""A member of a real job that becomes slow while it trains: named, shown, and replaced where that was asked for. Its
checkpoints are in memory alone, so that what is told of a lost one's place is told of them too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.local.chapters import live_through
from tests.local.scripts import calm, in_shards, remembering
from tests.local.training import SAVE_EVERY, Training, kill, members, one_job, pids, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("timing")]
SLOWER = "time.sleep = (lambda sleep: lambda seconds: sleep(seconds + 0.15))(time.sleep)"
"""In the script's own pause behind each step, as if it waited for its data."""


def a_rank_is_killed_and_all_go_on_from_their_members_memory(job: Training) -> None:
    restart, world = job.training(2, more=25)
    mark = job.mark()
    kill(pids(world)[1])
    _, world = job.training(2, after=restart, more=15)
    assert world[0][0].loaded > 0
    job.event("CheckpointLoaded", mark, f"loads step {world[0][0].loaded} from this member's memory")


def a_member_becomes_slow_and_is_named_and_replaced_while_it_trains_on(job: Training) -> None:
    restart, world = job.training(2)
    slow, mark = members(world)[1], job.mark()
    job.order(1, SLOWER)
    named = becomes_named(job, slow)
    assert (named["severity"], named["detail"]["cause"]) == ("warning", "waiting")
    _, new = job.training(2, after=restart)
    assert slow not in members(new)
    assert job.event("MemberDraining", mark, slow)


def its_replacement_was_given_what_is_in_memory(job: Training) -> None:
    _, world = job.training(2)
    newcomer = members(world)[1]
    assert world[1][0].loaded > 0
    job.event("CheckpointSent", 0, newcomer)
    job.event("CheckpointReceived", 0, f"{newcomer} has the checkpoint of step")
    job.end_well()


def becomes_named(job: Training, slow: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        return next((e for e in job.events() if e["kind"] == "Straggler" and e["member"] == slow), None)

    return until(found, lambda: f"a name in {job.story()}")


def test_a_slow_member_of_a_job_with_its_checkpoints_in_memory(tmp_path: Path, subtests: pytest.Subtests) -> None:
    flags = ("--nnodes", "2", "--exclude-straggler", "--checkpoint-memory", "2Mi")
    with one_job(tmp_path, *flags, script=calm(in_shards(remembering()))) as job:
        job.most_lost = 4 * SAVE_EVERY  # ranks do not wait until others have their parts
        live_through(
            subtests,
            job,
            a_rank_is_killed_and_all_go_on_from_their_members_memory,
            a_member_becomes_slow_and_is_named_and_replaced_while_it_trains_on,
            its_replacement_was_given_what_is_in_memory,
        )


@pytest.mark.exhaustive
def test_of_three_the_one_that_becomes_slow_is_named_and_nobody_else(tmp_path: Path) -> None:
    with one_job(tmp_path, "--nnodes", "3", "--exclude-straggler") as job:
        restart, world = job.training(3)
        slow = members(world)[2]
        job.order(2, SLOWER)
        becomes_named(job, slow)
        assert {each["member"] for each in job.events() if each["kind"] == "Straggler"} == {slow}
        _, new = job.training(3, after=restart)
        assert slow not in members(new)
        job.end_well()
