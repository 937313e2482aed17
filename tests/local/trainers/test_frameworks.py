"""Frameworks as their users run them: a crash, a smaller world and a larger one, all within an epoch.

Those that are not installed are left out; what is done for them is tested without them in `tests/unit/hooks`.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.local.elastic import Run, Seen, times_seen
from tests.local.trainers import frameworks
from tests.local.training import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
LENGTH, BATCH = 203, 6
SCRIPTS = {
    "accelerate": frameworks.ACCELERATE,
    "lightning": frameworks.LIGHTNING,
    "transformers": frameworks.TRANSFORMERS,
}
Begin = Callable[..., Run]


@pytest.fixture(params=SCRIPTS)
def begin(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Begin]:
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    made: list[Run] = []

    def begin(name: str, *flags: str) -> Run:
        wishes = {"length": LENGTH, "batch": BATCH}
        made.append(Run(tmp_path / name, "--elastic-data", *flags, script=SCRIPTS[request.param], **wishes))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def steps(seen: list[Seen]) -> list[tuple[int, int, list[int], float]]:
    return [(each.step, each.epoch, each.samples, each.loss) for each in seen]


def test_after_a_crash_a_framework_s_own_resume_goes_on_as_if_nothing_had_been(begin: Begin) -> None:
    plain = begin("plain", "--nnodes", "2").finished()
    job = begin("crash", "--nnodes", "2")
    job.hold_at(12)
    job.until_held(12, 2)
    worker = until(lambda: next(iter(job.member("worker-1")["pids"]["workers"]), None), "the rank of worker-1")
    os.kill(worker, signal.SIGKILL)
    assert steps(job.finished()) == steps(plain)


def test_in_a_smaller_world_and_a_larger_one_a_framework_sees_every_sample(begin: Begin) -> None:
    job = begin("sizes", "--nnodes", "2:3")
    job.hold_at(8)
    job.until_held(8, 3)
    job.signal_tree("worker-2", signal.SIGKILL)
    job.hold_at(11)
    job.until_held(11, 2)
    until(lambda: job.member("worker-3").get("state") in ("spare", "ready"), job.story)
    seen = job.finished()
    assert {each.world for each in seen if each.epoch == 0} == {2, 3}
    for epoch in (0, 1):
        counts = times_seen(seen, epoch)
        assert sorted(counts) == list(range(LENGTH)), sorted(set(range(LENGTH)) - set(counts))
        assert counts.total() - LENGTH < 3 * BATCH
