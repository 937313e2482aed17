"""The tally of a PS job agrees with a walk over all its tasks."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.ps import stalled_workers, tally
from outrider.master.core.ps.state import PsState
from outrider.master.core.step import next_deadline


def assert_tallied(job: PsState) -> None:
    anew = PsState(tasks={key: replace(task, marks=frozenset()) for key, task in job.tasks.items()})
    for task in anew.tasks.values():
        tally.note(anew, task)
        assert job.task_deadlines.at((task.role, str(task.index))) == next_deadline(task.state), task.name
    tally.settle(anew)
    stalled_workers.recount(anew)
    assert {key: tasks for key, tasks in job.marked.items() if tasks} == anew.marked
    assert (job.ring, job.description, job.trained_at) == (anew.ring, anew.description, anew.trained_at)
    assert job.late <= job.tasks.keys()
