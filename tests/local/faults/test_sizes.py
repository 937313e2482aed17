"""Worlds that shrink, grow and are scaled, spares, and jobs side by side that do not know of each other."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from outrider.cli.plotting.timeline import rates, timeline_of
from outrider.runtime.processes import is_alive
from outrider.runtime.series import moments
from tests.local import plain
from tests.local.chapters import live_through
from tests.local.scripts import calm
from tests.local.training import DEADLINE, SAVE_EVERY, SCRIPT, Training, jobs, kill, members, one_job, pids, until

pytestmark = pytest.mark.slow
SAYS = 'print(f"step {step} loss {loss.item():.4f}", flush=True)\n'
SAYING = calm(SCRIPT.replace("        time.sleep(0.02)\n", f"        time.sleep(0.02)\n        {SAYS}"))
PNG = b"\x89PNG"


# -- one job of one or two members, with torch ------------------------------------------------------------------------
@contextmanager
def a_slow_save(job: Training) -> Iterator[int]:
    """The process that is in it, for as long as this lasts."""
    saving, slow = job.folder / "saving", job.folder / "slow"
    saving.unlink(missing_ok=True)  # of an earlier one
    slow.touch()
    try:
        yield int(until(lambda: saving.exists() and saving.read_text(), job.story))
    finally:
        slow.unlink()


def it_finds_its_own_size_and_leaves_it_to_who_scales_by_hand(job: Training) -> None:
    job.training(1)
    reason = job.event("ScaleDecided", 0)["reason"]
    assert "1 member makes" in reason
    assert "2 members are tried" in reason
    job.training(2, more=1)
    mark = job.mark()
    job.outrider("scale", job.job, "2")
    job.event("ScalingPaused", mark)
    assert job.status()["scaling"]["condition"] == "Stop"


def a_rank_is_killed(job: Training) -> None:
    restart, world = job.training(2)
    mark = job.mark()
    kill(pids(world)[1])
    job.event("WorkerExited", mark, "Rank 1", "SIGKILL")
    _, new = job.training(2, after=restart)
    assert members(new) == members(world)
    job.event("Recovered", mark)


def a_rank_that_is_killed_in_its_save_leaves_the_last_checkpoint_whole(job: Training) -> None:
    restart, _ = job.training(2)
    with a_slow_save(job) as saving:
        kill(saving)
    _, new = job.training(2, after=restart)
    assert new[0][0].loaded == max((step for step in job.saved if step <= new[0][0].loaded), default=0)


def a_rank_in_its_save_is_let_finish_when_another_dies(job: Training) -> None:
    restart, world = job.training(2)
    with a_slow_save(job):
        mark = job.mark()
        kill(pids(world)[1])
        job.event("WorkerExited", mark, "Rank 1")
    reached = max(step.step for step in job.worlds()[restart][0])
    _, new = job.training(2, after=restart)
    assert new[0][0].loaded == reached


def who_survives_goes_on_and_the_world_grows_when_the_replacement_has_come(job: Training) -> None:
    restart, world = job.training(2)
    mark = job.mark()
    victim = members(world)[0]
    job.signal_tree(victim, signal.SIGKILL)
    job.event("MemberLost", mark, victim)
    smaller, one = job.training(1, after=restart)
    assert members(one) == members(world)[1:]
    job.event("ResizeStarted", mark)
    _, two = job.training(2, after=smaller)
    assert two[0][0].member not in members(world)
    assert members(two)[1:] == members(world)[1:]
    assert two[0][0].loaded > one[0][0].loaded, "growing waited for a checkpoint"


def who_scales_it_down_loses_no_step(job: Training) -> None:
    restart, _ = job.training(2)
    job.outrider("scale", job.job, "1")
    _, one = job.training(1, after=restart)
    before = job.worlds()[restart][0][-1].step
    assert before - one[0][0].loaded <= SAVE_EVERY, "it waited for a save, and went on until it was stopped"


def it_looks_for_its_size_again_when_that_is_asked_for(job: Training) -> None:
    job.training(1)
    mark = job.mark()
    job.outrider("scale", job.job, "auto")
    job.event("ScalingResumed", mark)
    job.event("ScaleDecided", mark, "2 members are tried")


def it_is_drawn_while_it_runs_and_when_it_is_over(job: Training) -> None:
    def is_past_it() -> bool:
        recovered = int(job.event("Recovered", 0)["detail"]["step"])
        return any(moment["step"] > recovered for moment in moments(job.job_folder / "progress.jsonl"))

    until(is_past_it, "progress behind the fault")
    for name in ("running.png", "over.png"):
        drawn = job.outrider("plot", job.job, "-o", str(job.folder / name))
        assert drawn.split() == [str(job.folder / name)]
        assert (job.folder / name).read_bytes().startswith(PNG)
        if name == "running.png":
            job.end_well()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTRIDER_HOME", job.environment["OUTRIDER_HOME"])
        found = timeline_of(job.job)
    assert found.phase == "succeeded"
    assert [span.members for span in found.spans][:4] == [1, 2, 2, 2], "alone, with another one, and after two kills"
    assert all(one.end <= two.begin for one, two in zip(found.spans, found.spans[1:], strict=False))
    lost = [event for event in job.events() if event["kind"] == "MemberLost"]
    killed = [event for event in job.events() if "was killed by SIGKILL" in event["reason"]]
    explained = {event["generation"] for event in lost if " This explains " in event["reason"]}
    told = {event["reason"].partition(" This explains ")[0] for event in lost}
    told |= {event["reason"] for event in killed if event["generation"] not in explained}
    assert told <= {mark.reason for mark in found.faults}
    assert max(rate for _, _, rate in rates(found.steps)) > 0
    assert found.steps[-1][1] == found.step == json.loads((job.job_folder / "status.json").read_text())["step"]
    assert {f"{loss:.4f}" for _, loss in found.losses} <= {f"{step.loss:.4f}" for step in job.steps()}
    assert len(found.losses) > 2


GROWING = (
    who_survives_goes_on_and_the_world_grows_when_the_replacement_has_come,
    who_scales_it_down_loses_no_step,
    it_looks_for_its_size_again_when_that_is_asked_for,
)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(GROWING[1:], id="down and up"),  # test_elastic_data.py has a world that shrinks and grows
        pytest.param(GROWING, id="down, up, down and up", marks=pytest.mark.exhaustive),
    ],
)
def test_a_job_with_torch_lives_through_its_sizes_and_is_hurt_in_its_saves(
    tmp_path: Path, subtests: pytest.Subtests, sizes: Sequence[Callable[[Training], None]]
) -> None:
    assert SAYS in SAYING
    flags = ("--nnodes", "1:2", "--scaling", "throughput,min-gain=0,cooldown=0", "--max-restarts", "100")
    with one_job(tmp_path, *flags, script=SAYING) as job:
        live_through(
            subtests,
            job,
            it_finds_its_own_size_and_leaves_it_to_who_scales_by_hand,
            a_rank_is_killed,
            a_rank_that_is_killed_in_its_save_leaves_the_last_checkpoint_whole,
            a_rank_in_its_save_is_let_finish_when_another_dies,
            *sizes,
            it_is_drawn_while_it_runs_and_when_it_is_over,
        )


# -- without ----------------------------------------------------------------------------------------------------------
def test_a_member_that_may_not_be_replaced_leaves_a_smaller_world_and_the_job_beside_it_in_peace(
    tmp_path: Path,
) -> None:
    with jobs() as (home, started):

        def begin(name: str, *flags: str) -> Training:
            (tmp_path / name).mkdir()
            started.append(Training(tmp_path / name, home, *flags, job=name, script=plain.SCRIPT))
            return started[-1]

        shrinking = begin("shrinking", "--nnodes", "1:2", "--max-relaunches", "0")
        neighbour = begin("neighbour", "--nnodes", "1", "--spares", "1")
        restart, world = shrinking.training(2)
        untouched, own = neighbour.training(1)
        victim = members(world)[0]
        hit = shrinking.signal_tree(victim, signal.SIGKILL)
        _, one = shrinking.training(1, after=restart)
        assert members(one) == [members(world)[1]]
        assert not [pid for pid in hit if is_alive(pid)]
        until(lambda: [m for m in neighbour.status()["members"] if m["state"] == "spare"], neighbour.story)
        shrinking.end_well()
        again, same = neighbour.training(1, more=len(own[0]) + 5)
        assert (again, pids(same)) == (untouched, pids(own))
        _a_spare_takes_the_place(neighbour)


def _a_spare_takes_the_place(job: Training) -> None:
    restart, world = job.training(1)
    spare = next(m["id"] for m in job.status()["members"] if m["state"] == "spare")
    mark = job.mark()
    job.signal_tree(members(world)[0], signal.SIGKILL)
    job.event("SparePromoted", mark, spare)
    _, new = job.training(1, after=restart)
    assert members(new) == [spare]
    job.end_well()


@pytest.mark.exhaustive
def test_stop_does_not_wait_for_members_that_are_frozen(tmp_path: Path) -> None:
    with one_job(tmp_path, "--nnodes", "2:3", script=plain.SCRIPT) as job:
        restart, world = job.training(3)
        mark = job.mark()
        job.allowed_old = job.signal_tree(members(world)[1], signal.SIGSTOP)
        job.event("MemberSilent", mark)
        _, rest = job.training(None, after=restart)  # two, or three where the replacement was quick
        job.allowed_old |= job.signal_tree(members(rest)[0], signal.SIGSTOP)
        job.outrider("stop", job.job)
        assert job.process.wait(DEADLINE) == 0, job.story()
        assert job.left() == []
        assert job.status()["phase"] == "stopped"


@pytest.mark.exhaustive
def test_a_world_of_three_shrinks_grows_and_is_scaled_down_and_up(tmp_path: Path) -> None:
    with one_job(tmp_path, "--nnodes", "2:3") as job:
        restart, world = job.training(3)
        mark = job.mark()
        victim = members(world)[0]
        job.signal_tree(victim, signal.SIGKILL)
        job.event("MemberLost", mark, victim)
        smaller, two = job.training(2, after=restart)
        assert members(two) == members(world)[1:]
        restart, three = job.training(3, after=smaller)
        assert members(three)[1:] == members(world)[1:]
        assert three[0][0].loaded > two[0][0].loaded, "growing waited for a checkpoint"
        job.outrider("scale", job.job, "2")
        smaller, two = job.training(2, after=restart)
        before = job.worlds()[restart][0][-1].step
        assert before - two[0][0].loaded <= SAVE_EVERY, "it waited for a save, and went on until it was stopped"
        job.outrider("scale", job.job, "3")
        job.training(3, after=smaller)
        job.end_well()
