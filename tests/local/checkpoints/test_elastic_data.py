"""Data positions in real jobs: each sample once in an epoch, whatever happened to the world in the middle of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.local.chapters import live_through
from tests.local.elastic import SCRIPT, Run, Seen, assert_each_once, times_seen
from tests.local.training import until

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def begin(*flags: str, name: str = "run", **wishes: object) -> Run:
        made.append(Run(tmp_path / name, *flags, **wishes))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def kill_member(job: Run, member: str) -> None:
    job.signal_tree(member, signal.SIGKILL)


def kill_rank(job: Run, member: str) -> None:
    worker = until(lambda: next(iter(job.member(member)["pids"]["workers"]), None), f"the rank of {member}")
    os.kill(worker, signal.SIGKILL)


def losses(seen: list[Seen]) -> dict[int, float]:
    return {each.step: each.loss for each in seen if each.rank == 0}


def held(job: Run, step: int, kept: int) -> int:
    """Both ranks stop at this step, with that one kept in memory; a mark for what comes."""
    job.hold_at(step)
    job.until_held(step, 2)
    job.event("CheckpointReplicated", 0, f"(step {kept})")
    return job.mark()


def test_a_job_with_its_checkpoints_in_memory_shrinks_and_grows_within_an_epoch_and_sees_each_sample_once(
    run: Callable[..., Run], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Its torch.save is to a marked path; its samples are read by DataLoader workers."""

    def rank_0_is_killed(job: Run) -> None:
        mark = held(job, 8, kept=6)
        kill_rank(job, "worker-0")
        job.event("CheckpointLoaded", mark, "from this member's memory")
        job.event("DataPositionLoaded", mark, "epoch 0 after 48 of 203 samples", "had 2 ranks before and has 2")

    def the_member_of_rank_0_is_lost(job: Run) -> None:
        mark = held(job, 11, kept=9)
        kill_member(job, "worker-0")
        job.event("CheckpointLoaded", mark, "from this member's memory")
        job.event("DataPositionLoaded", mark, "after 72 of 203 samples", "had 2 ranks before and has 1")

    def its_replacement_is_given_the_newest_save_and_trains(job: Run) -> None:
        job.hold_at(14)
        job.until_held(14, 1)
        until(lambda: job.member("worker-2").get("state") in ("spare", "ready"), job.story)
        mark = job.mark()
        job.hold_at(20)
        job.event("CheckpointReceived", 0, "worker-2 has save")
        job.event("DataPositionLoaded", mark, "of 203 samples", "had 1 rank before and has 2")

    def each_sample_was_seen_once(job: Run) -> None:
        seen = job.finished()
        assert_each_once(seen, 0)
        assert_each_once(seen, 1)
        assert [world for world, _ in groupby(e.world for e in seen if e.epoch == 0)] == [2, 1, 2]
        assert job.status()["data"]["samples_repeated"] == 0

    marked = ("--checkpoint-memory", "1Mi", "--checkpoint-path", str(tmp_path / "run" / "model.pt"))
    live_through(
        subtests,
        run("--nnodes", "1:2", "--elastic-data", *marked, workers=2),
        rank_0_is_killed,
        the_member_of_rank_0_is_lost,
        its_replacement_is_given_the_newest_save_and_trains,
        each_sample_was_seen_once,
    )


@pytest.mark.exhaustive
def test_the_position_goes_with_a_save_that_is_in_memory_alone(run: Callable[..., Run], tmp_path: Path) -> None:
    plain = run("--nnodes", "2", name="plain").finished()
    path = str(tmp_path / "run" / "model.pt")
    job = run("--nnodes", "2", "--elastic-data", "--checkpoint-memory", "1Mi", "--checkpoint-path", path)
    job.hold_at(8)  # the third save would be an ordinary one where the others have not got the second one yet
    job.until_held(8, 2)
    job.event("CheckpointReplicated", 0, "(step 6)")
    mark = job.mark()
    kill_rank(job, "worker-0")
    job.event("CheckpointLoaded", mark, "from this member's memory")
    job.event("DataPositionLoaded", mark, "epoch 0 after 48 of 203 samples", "had 2 ranks before and has 2")
    seen = job.finished()
    assert [(e.step, e.epoch, e.samples, e.loss) for e in seen] == [(e.step, e.epoch, e.samples, e.loss) for e in plain]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workers", "shuffle"), [(0, True), (2, False)])
def test_after_a_crash_in_place_an_epoch_goes_on_as_if_nothing_had_been(
    run: Callable[..., Run], workers: int, shuffle: bool
) -> None:
    plain = run("--nnodes", "2", name="plain", workers=workers, shuffle=shuffle).finished()
    job = run("--nnodes", "2", "--elastic-data", workers=workers, shuffle=shuffle)
    job.hold_at(12)
    job.until_held(12, 2)
    mark = job.mark()
    kill_rank(job, "worker-1")
    job.event("DataPositionLoaded", mark, "epoch 0 after 72 of 203 samples", "had 2 ranks before and has 2")
    seen = job.finished()
    assert [(e.step, e.epoch, e.samples, e.loss) for e in seen] == [(e.step, e.epoch, e.samples, e.loss) for e in plain]
    assert job.status()["data"]["samples_repeated"] == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workers", "shuffle", "rank_0_loads"), [(2, True, True), (0, False, False)])
def test_a_job_that_shrinks_and_grows_within_an_epoch_sees_each_sample_once(
    run: Callable[..., Run], workers: int, shuffle: bool, rank_0_loads: bool
) -> None:
    wishes = {"workers": workers, "shuffle": shuffle, "rank_0_loads": rank_0_loads}
    job = run("--nnodes", "3:4", "--elastic-data", length=403, **wishes)
    job.hold_at(5)
    job.until_held(5, 4)
    mark = job.mark()
    kill_member(job, "worker-3")
    job.event("DataPositionLoaded", mark, "after 48 of 403 samples", "had 4 ranks before and has 3")
    job.hold_at(8)
    job.until_held(8, 3)
    until(lambda: job.member("worker-4").get("state") == "spare" or job.member("worker-4").get("state") == "ready")
    job.hold_at(12)
    job.event("DataPositionLoaded", mark, "after 120 of 403 samples", "had 3 ranks before and has 4")
    seen = job.finished()
    assert_each_once(seen, 0, 403)
    assert_each_once(seen, 1, 403)
    assert [world for world, _ in groupby(e.world for e in seen if e.epoch == 0)] == [4, 3, 4]


@pytest.mark.exhaustive
def test_without_the_flag_the_status_says_how_many_samples_a_resume_repeats(run: Callable[..., Run]) -> None:
    job = run("--nnodes", "2")
    job.hold_at(12)
    job.until_held(12, 2)
    mark = job.mark()
    kill_rank(job, "worker-1")
    job.event("SamplesRepeated", mark, "Epoch 0 starts over", "72 of its 203 samples")
    counts = times_seen(job.finished(), 0)
    assert counts.total() - 203 >= 72
    assert job.status()["data"]["samples_repeated"] == 72
    assert not list((job.folder).glob(".*.position.json"))


@pytest.mark.exhaustive
def test_the_global_batch_is_kept_in_a_smaller_world_with_unequal_shares(run: Callable[..., Run]) -> None:
    job = run("--nnodes", "3:4", "--elastic-data", "--keep-global-batch", "--max-relaunches", "0", length=403)
    job.hold_at(5)
    job.until_held(5, 4)
    mark = job.mark()
    kill_member(job, "worker-3")
    job.event("GlobalBatchPreserved", mark, "stays 16: 6 on the first rank and 5 on the others")
    job.event("DataPositionLoaded", mark, "after 48 of 403 samples", "had 4 ranks before and has 3")
    seen = job.finished()
    assert_each_once(seen, 0, 403)
    assert_each_once(seen, 1, 403)
    sizes = {step: [len(e.samples) for e in seen if e.step == step] for step in {e.step for e in seen}}
    assert sizes[4] == [6, 5, 5]
    assert {sum(each) for each in sizes.values()} <= {16, 3}
    assert len({e.length for e in seen if e.world == 3 and e.epoch == 1}) == 1
    assert {e.length for e in seen if e.world == 3} == {23, 26}, "what is left, then a whole epoch"


@pytest.mark.exhaustive
def test_a_script_whose_batches_cannot_be_changed_goes_on_with_them_and_is_told_why(run: Callable[..., Run]) -> None:
    script = SCRIPT.replace(
        'batch_size=WISHES["batch"], sampler=sampler',
        'batch_sampler=Mine(sampler, WISHES["batch"], False)',
    ).replace("class Numbers", "class Mine(torch.utils.data.BatchSampler):\n    pass\n\n\nclass Numbers")
    job = run("--nnodes", "2", "--elastic-data", "--keep-global-batch", script=script)
    for kind in ("GlobalBatchNotPreserved", "ElasticDataUnavailable"):
        job.event(kind, 0, "its batch_sampler is the script's own (Mine)")
    seen = job.finished()
    assert {len(e.samples) for e in seen if e.step < 20} == {4}
    assert not list((job.folder).glob(".*.position.json"))
