"""A message of one member of a PS job touches its own task alone, however many tasks there are.

Work is counted, not timed: the tasks whose state is read, and the lines of Python that run, in a step and in all that a
pump asks around it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import pytest

from outrider.master.core import job_kinds
from outrider.master.core.actions import CreatePod, SaveStatus, Send
from outrider.master.core.events import (
    Began,
    Event,
    PodSeen,
    PodsListed,
    SidecarDisconnected,
    SidecarSaid,
    StatusSaved,
    StopAsked,
    Woke,
)
from outrider.master.core.ps import status_batch
from outrider.master.core.ps.state import PsState, Task
from outrider.master.core.ps.tf_config import MOST_NEIGHBOURS
from outrider.wire.ids import NO_GENERATION, Generation, PodUid
from outrider.wire.messages.checkpoints import Saved
from outrider.wire.messages.directions import FromSidecar
from outrider.wire.messages.generation import Exited, Ready, Start, Started, Stepped, WorkerExit
from outrider.wire.messages.membership import Hello, Leaving
from outrider.wire.messages.report import RankProgress, Report
from tests.unit.master.core.placement.test_staffing_cost import lines_of
from tests.unit.master.core.ps_play import ps_job

FEW, MANY = 20, 120
RUN = Generation(1, 1)
PS, CHIEF, WORKER_0, WORKER = 0, 2, 3, 7
"""Numbers of members: parameter servers are two, and workers come last."""


def report(step: int) -> Report:
    rank = RankProgress(0, step, 0.0, "step" if step else "init", 0.1 if step else 0.0)
    return Report(RUN, "running", step, 0.1, ranks=(rank,))


def exited() -> Exited:
    return Exited(RUN, (WorkerExit(0, 90, 1, error_type="ValueError", error_message="no"),), 0)


class Members:
    """A job whose tasks all run; `trains`: all but the parameter servers also make steps."""

    def __init__(self, tasks: int, trains: bool) -> None:
        self.job, self.now, self.trains = PsState(), 0.0, trains
        self.hear(Began(1, ps_job(2, tasks - 3), None, 1.7e9))
        self.made = [each for each in self.hear(PodsListed(())) if isinstance(each, CreatePod)]
        assert len(self.made) == tasks
        numbers = range(tasks)
        with pytest.MonkeyPatch.context() as patched:  # one status for all of them is enough
            patched.setattr(status_batch, "flush", lambda _job: None)
            for n in numbers:
                for event in (self.pod(n), self.hello(n), sent(n, READY)):
                    self.hear(event)
        saved = [each for each in self.hear(Woke()) if isinstance(each, SaveStatus)]
        starts = [each.message for each in self.hear(StatusSaved(saved[-1].version)) if isinstance(each, Send)]
        for n, start in enumerate(starts):
            assert isinstance(start, Start)
            self.hear(sent(n, Started(start.order, RUN, (90,))))
        self.now = 1.0
        for n in numbers:
            self.hear(sent(n, report(int(trains and n >= CHIEF))))
        self.hear(Woke())
        assert all(task.runs is not None for task in self.job.tasks.values())

    def hear(self, event: Event) -> list[Any]:
        """Handles an event as a pump does."""
        job_kinds.describe(self.job)
        actions = job_kinds.step(self.job, event, self.now)
        job_kinds.check(self.job)
        job_kinds.describe(self.job)
        job_kinds.next_deadline(self.job)
        return actions

    def hello(self, number: int, running: Generation = NO_GENERATION) -> SidecarSaid:
        made, job = self.made[number], self.job.spec.name
        message = Hello(job, made.member, PodUid(made.member), made.role, made.rank_index, "", probe_port=9,
                        running=running, highest=running)  # fmt: skip
        return sent(number, message)

    def pod(self, number: int, phase: str = "running") -> PodSeen:
        made = self.made[number]
        return PodSeen(made.member, PodUid(made.member), made.role, made.rank_index, phase)


@cache
def _packed(tasks: int, trains: bool) -> bytes:
    return pickle.dumps(Members(tasks, trains))


def members_of(tasks: int, trains: bool = True) -> Members:
    unpacked = pickle.loads(_packed(tasks, trains))
    assert isinstance(unpacked, Members)
    return unpacked


READY = Ready(4000, 1, "T0", "")


def sent(number: int, message: FromSidecar) -> SidecarSaid:
    return SidecarSaid(f"s{number}", message)


class Cost(NamedTuple):
    tasks: int
    """The tasks whose state was read."""
    lines: int


def cost(monkeypatch: pytest.MonkeyPatch, members: Members, *events: Event) -> Cost:
    """The cost of the last event. The events before it wrote the status, which has a row for each task and is written
    once a second."""
    for event in (sent(CHIEF, report(2 if members.trains else 0)), *events[:-1]):
        members.hear(event)
    with tasks_read(monkeypatch) as read:
        lines = lines_of(lambda: members.hear(events[-1]))
    return Cost(len(read), lines)


@contextmanager
def tasks_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    slot, read = Task.__dict__["state"], set[int]()

    def look(task: Task) -> Any:
        read.add(id(task))
        return slot.__get__(task)

    with monkeypatch.context() as patched:
        patched.setattr(Task, "state", property(look, slot.__set__))
        yield read


EVENTS: dict[str, Callable[[Members], tuple[Event, ...]]] = {
    "a worker's report": lambda _: (sent(WORKER, report(2)), sent(WORKER, report(3))),
    "a parameter server's report": lambda _: (sent(PS, report(0)),),
    "a step": lambda _: (sent(WORKER, Stepped(RUN, 3, 0.1)),),
    "a checkpoint": lambda _: (sent(CHIEF, Saved(RUN, "/checkpoint", 2)),),
    "a worker's exit": lambda _: (sent(WORKER, exited()),),
    "a report while a parameter server is away": lambda _: (sent(PS, exited()), sent(WORKER, report(3))),
    "the exit of a worker that has lost its parameter server": lambda _: (sent(PS, exited()), sent(WORKER, exited())),
    "a connection's end": lambda _: (SidecarDisconnected(f"s{WORKER}"),),
    "a new connection": lambda members: (SidecarDisconnected(f"s{WORKER}"), members.hello(WORKER, RUN)),
    "a member that leaves": lambda _: (sent(WORKER, Leaving("eviction", 30.0)),),
    "a pod that ends": lambda members: (members.pod(WORKER, "terminating"),),
    "a report while the job ends": lambda members: (StopAsked("enough"), sent(WORKER, report(3))),
}


@pytest.mark.parametrize("what", EVENTS)
def test_an_event_of_one_member_touches_its_own_task_alone(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (cost(monkeypatch, made := members_of(tasks), *EVENTS[what](made)) for tasks in (FEW, MANY))
    assert few == many
    assert few.tasks == (1 + MOST_NEIGHBOURS if what == "a new connection" else 1), (
        "a member that reconnects gets its neighbours"
    )


def test_a_report_costs_no_more_if_no_worker_makes_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator's workers make no steps, so each report needs to know whether others train."""

    def overdue(tasks: int) -> Cost:
        members = members_of(tasks, trains=False)
        members.now += members.job.spec.start_patience
        for n in range(tasks):
            members.hear(sent(n, report(0)))
        assert len(members.job.late) == tasks - WORKER_0
        return cost(monkeypatch, members, sent(WORKER, report(0)), sent(WORKER, report(0)))

    assert overdue(FEW) == overdue(MANY)
