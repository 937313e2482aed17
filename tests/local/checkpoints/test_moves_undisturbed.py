"""A job that moves in the middle of an epoch, beside one to which nothing happens: the same samples, the same losses.

The script's only randomness is its sampler's, and all that it has is registered, the sampler too. It saves nothing by
itself, so that the second job has what was saved for the move and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.local.elastic import SCRIPT, Run, assert_each_once
from tests.local.training import DEADLINE

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

REGISTERED = """
    from training_hooks import migrator
    progress = {"epoch": 0, "step": 0}
    for name, value in (("net", net), ("optimizer", optimizer), ("sampler", sampler), ("progress", progress)):
        migrator.register(name, value)
    migrator.listening()
    if migrator.resume:
        migrator.load_ckpt()
    first, step = progress["epoch"], progress["step"]
"""


def moving() -> str:
    """The script of the data's tests, with the migrator in place of its own checkpoints."""
    begin, end = SCRIPT.index("    first, step, path = "), SCRIPT.index("    trace = (FOLDER")
    script = SCRIPT[:begin] + REGISTERED.lstrip("\n") + SCRIPT[end:]
    begin, end = script.index('            if rank == 0 and step % WISHES["every"]'), script.index("    del model")
    script = script[:begin] + script[end:]
    script = script.replace("sampler = DistributedSampler(", "sampler = __import__('training_hooks').ElasticSampler(")
    return script.replace(
        "            step += 1\n", "            step += 1\n            progress.update(epoch=epoch, step=step)\n"
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def begin(name: str, *flags: str, **wishes: object) -> Run:
        moves = ("--migration-dir", str(tmp_path / name / "volume"))
        made.append(Run(tmp_path / name, *moves, *flags, script=moving(), **wishes))
        return made[-1]

    yield begin
    for each in made:
        each.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_that_is_stopped_and_begun_anew_trains_as_if_nothing_had_been(
    run: Callable[..., Run], workers: int
) -> None:
    plain = run("plain", "--nnodes", "2", workers=workers).finished()
    job = run("moved", "--nnodes", "2", workers=workers)
    job.hold_at(12)
    job.until_held(12, 2)
    job.outrider("stop", "train")
    job.event("SaveRequested", 0)
    job.hold_at(13)  # one step, behind which it is saved, or beside it where the order comes late
    assert job.process.wait(DEADLINE) == 0, job.story()
    job.event("StateSaved", 0)
    made = max(each.step for each in job.lines())
    assert made < max(each.step for each in plain), "it was to be stopped in the middle"
    seen = run("moved", "--nnodes", "2", workers=workers).finished()
    assert [(e.step, e.epoch, e.samples, e.loss) for e in seen] == [(e.step, e.epoch, e.samples, e.loss) for e in plain]
    assert len(job.lines()) == len(plain), "no step was made twice"


def test_a_job_that_moves_to_fewer_machines_sees_each_sample_once(run: Callable[..., Run]) -> None:
    job = run("moved", "--nnodes", "3", epochs=1)
    job.hold_at(5)
    job.until_held(5, 3)
    job.outrider("stop", "train")
    job.event("SaveRequested", 0)
    job.hold_at(6)
    assert job.process.wait(DEADLINE) == 0, job.story()
    before = job.lines()
    seen = run("moved", "--nnodes", "2", epochs=1).finished()
    again = [each for each in seen if each.world == 2]
    assert min(each.step for each in again) == max(each.step for each in before) + 1
    assert_each_once(seen, 0)
