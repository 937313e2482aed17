"""Worlds that shrink, grow and are scaled, spares, and jobs side by side that do not know of each other."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.processes import is_alive
from tests.local.training import SAVE_EVERY, Training, members, pids, until

pytestmark = pytest.mark.slow
Start = Callable[..., Training]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    jobs: list[Training] = []

    def begin(name: str, *flags: str) -> Training:
        jobs.append(Training(tmp_path_factory.mktemp(name), home, *flags, job=name))
        return jobs[-1]

    try:
        yield begin
    finally:
        for job in jobs:
            job.close()
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def elastic(start: Start) -> Training:
    return start("elastic", "--nnodes", "2:3")


def test_survivors_go_on_and_the_world_grows_when_the_replacement_has_come(elastic: Training) -> None:
    restart, world = elastic.training(3)
    mark = elastic.mark()
    victim = members(world)[0]
    elastic.signal_tree(victim, signal.SIGKILL)
    elastic.event("MemberLost", mark, victim)
    smaller, two = elastic.training(2, after=restart)
    assert members(two) == members(world)[1:]
    elastic.event("WorldResizes", mark)
    _, three = elastic.training(3, after=smaller)
    assert three[0][0].member not in members(world)
    assert members(three)[1:] == members(world)[1:]
    assert three[0][0].loaded > two[0][0].loaded, "growing waited for a checkpoint"


def test_scale_down_and_up_lose_no_step(elastic: Training) -> None:
    restart, _ = elastic.training(3)
    elastic.outrider("scale", elastic.job, "2")
    smaller, two = elastic.training(2, after=restart)
    before = elastic.worlds()[restart][0][-1].step
    assert before - two[0][0].loaded <= SAVE_EVERY, "it waited for a save, and went on until it was stopped"
    elastic.outrider("scale", elastic.job, "3")
    elastic.training(3, after=smaller)


def test_stop_does_not_wait_for_members_that_are_frozen(elastic: Training) -> None:
    restart, world = elastic.training(3)
    mark = elastic.mark()
    elastic.allowed_old = elastic.signal_tree(members(world)[1], signal.SIGSTOP)
    elastic.event("MemberSilent", mark)
    _, rest = elastic.training(None, after=restart)  # two, or three where the replacement was quick
    elastic.allowed_old |= elastic.signal_tree(members(rest)[0], signal.SIGSTOP)
    elastic.outrider("stop", elastic.job)
    assert elastic.process.wait(60) == 0, elastic.story()
    assert elastic.left() == []
    assert elastic.status()["phase"] == "stopped"


def test_a_member_that_may_not_be_replaced_leaves_a_smaller_world_and_the_job_beside_it_in_peace(start: Start) -> None:
    shrinking = start("shrinking", "--nnodes", "1:2", "--max-relaunches", "0")
    neighbour = start("neighbour", "--nnodes", "1", "--spares", "1")
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


def test_a_job_finds_its_own_size_and_leaves_it_to_who_scales_by_hand(start: Start) -> None:
    job = start("own-size", "--nnodes", "1:2", "--scaling", "throughput,min-gain=0,cooldown=0")
    job.training(1)
    reason = job.event("ScaleDecided", 0)["reason"]
    assert "1 member makes" in reason
    assert "2 members are tried" in reason
    grown, _ = job.training(2)
    mark = job.mark()
    job.outrider("scale", job.job, "1")
    job.event("ScalingPaused", mark)
    job.training(1, after=grown)
    assert job.status()["scaling"]["condition"] == "Stop"
    job.outrider("scale", job.job, "auto")
    job.event("ScalingResumed", mark)
    job.event("ScaleDecided", mark, "2 members are tried")
    job.end_well()
