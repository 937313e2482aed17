"""A real TensorFlow job of two members without parameter servers: TF_CONFIG in each generation, and what a killed rank
costs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lines import whole_lines
from tests.local.trainers.tf_workers import EVERY, GATES, LAST, SCRIPT
from tests.local.training import DEADLINE, Training, jobs, until

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]
Row = dict[str, Any]


@pytest.fixture
def job(tmp_path: Any) -> Iterator[Training]:
    with jobs() as (home, started):
        started.append(Training(tmp_path, home, "--nnodes", "2", script=SCRIPT))
        yield started[0]


def rows(job: Training, generation: str) -> list[Row]:
    """What the ranks of a generation wrote."""
    lines = [line for path in job.folder.glob("rows-*.jsonl") for line in whole_lines(path)]
    return [row for row in map(json.loads, lines) if row["generation"] == generation]


def reach(job: Training, generation: str, step: int) -> list[Row]:
    """How its ranks began, once both have made that step; by index."""

    def there() -> bool:
        job.assert_goes_on()
        return sum(row.get("step") == step for row in rows(job, generation)) == 2

    until(there, lambda: f"step {step} of {generation}\n{job.story()}", 2 * DEADLINE)
    return sorted((row for row in rows(job, generation) if "begins" in row), key=lambda row: int(row["index"]))


def test_each_generation_has_its_workers_and_a_killed_one_costs_the_steps_since_the_checkpoint(job: Training) -> None:
    clusters = []
    for number, (gate, begins, member) in enumerate(zip(GATES, (0, EVERY), ("worker-1", "worker-0"), strict=True), 1):
        began = reach(job, f"1.{number}", gate)
        assert [(row["index"], row["begins"], row["replicas"]) for row in began] == [(0, begins, 2), (1, begins, 2)]
        assert [row["config"]["task"] for row in began] == [{"type": "worker", "index": index} for index in range(2)]
        first, second = (row["config"]["cluster"]["worker"] for row in began)
        assert first == second
        assert len(set(first)) == 2
        clusters.append(first)
        job.outrider("chaos", "kill-process", "train", "--member", member)
        job.event("GenerationStarted", 0, f"Generation 1.{number + 1} starts")
        (job.folder / f"go-{gate}").touch()
    assert job.process.wait(DEADLINE) == 0, job.log()
    assert not set(clusters[0]) & set(clusters[1])
    last = rows(job, "1.3")
    assert {row["begins"] for row in last if "begins" in row} == {GATES[1] // EVERY * EVERY}
    assert sorted(row["index"] for row in last if row.get("step") == LAST) == [0, 1]
    assert job.status()["phase"] == "succeeded"
    assert job.left() == []
