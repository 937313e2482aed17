"""The history of a PS job: one part for all tasks, which a report reads like that of any other job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.master.core.actions import SaveHistory
from outrider.report.job import Job, Sources, job_of
from tests.unit.master.core.ps_play import PsPlay, training


def written(play: PsPlay) -> dict[str, Any]:
    """The newest part, as the shell gets it."""
    part = [action.part for action in play.actions if isinstance(action, SaveHistory)][-1]
    found: dict[str, Any] = json.loads(json.dumps(part))
    return found


def read(play: PsPlay) -> Job:
    part = written(play)
    job = job_of(Sources(json.loads(json.dumps(play.status())), [("history-1.json", part)]), part["until"])
    assert not job.notes
    return job


def ended(play: PsPlay) -> PsPlay:
    play.done("chief-0")
    play.until(lambda: play.ended() is not None)
    return play


def test_each_chief_and_worker_has_a_row_that_adds_up_to_the_account() -> None:
    play = training(1, 2)
    play.run(30)
    job = read(ended(play))
    assert sorted(index for row in job.timeline.rows for each in row.indexes for index in range(each[0], each[1] + 1)) \
        == [0, 1, 2]  # fmt: skip
    seconds = sum(row.end * sum(last - first + 1 for first, last in row.indexes) / 10 for row in job.timeline.rows)
    assert seconds == pytest.approx(job.wall, abs=1.0)
    assert {(each.rank_index, each.member) for each in job.timeline.holders} >= {
        (0, "chief-0"), (1, "worker-0"), (2, "worker-1"),
    }  # fmt: skip


@pytest.mark.parametrize(("member", "place"), [("worker-1", 2), ("ps-0", None)])
def test_a_fault_has_its_evidence_and_the_decisions(member: str, place: int | None) -> None:
    play = training(1, 2)
    play.run(20)
    play.crash(member, code=1, signal=None, error="ValueError", message="bad batch")
    play.run(40)
    job = read(ended(play))
    (case,) = job.cases
    assert case.is_recorded
    assert (case.fault.kind, case.fault.member, case.fault.rank_index) == ("WorkerExited", member, place)
    assert case.fault.evidence[0].error == "ValueError: bad batch"
    assert case.fault.decisions
    kinds = [event.kind for event in job.events]
    assert "WorkerExited" in kinds
    assert [kinds.count(kind) for kind in ("JobStarted", "JobSucceeded", "JobStopped")] == [1, 1, 0], "no task's own"


def test_it_is_written_when_something_has_happened_and_not_at_every_step() -> None:
    play = training(1, 2)
    play.run(60)
    before = sum(isinstance(action, SaveHistory) for action in play.actions)
    play.run(300)
    assert sum(isinstance(action, SaveHistory) for action in play.actions) - before <= 3
