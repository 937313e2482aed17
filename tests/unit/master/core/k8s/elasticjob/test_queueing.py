"""Admission if several jobs lack room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.k8s.elasticjob.queueing import (
    AGAIN,
    IN_VAIN,
    PATIENCE,
    Candidate,
    Queue,
    is_queued_elsewhere,
)
from outrider.master.core.k8s.values.names import Document
from outrider.wire.ids import JobName
from tests.unit.master.core.k8s.documents import job, template

OLD, YOUNG, YOUNGEST = (JobName(f"research/{name}") for name in ("old", "young", "youngest"))


def candidate(name: JobName, lacks_room: bool = True, behind: str = "") -> Candidate:
    return Candidate(name, f"2026-01-0{1 + (OLD, YOUNG, YOUNGEST).index(name)}T00:00:00Z", lacks_room, behind)


def test_the_younger_waits_behind_the_oldest_once_the_lack_has_lasted() -> None:
    queue, both = Queue(), [candidate(YOUNG), candidate(OLD)]
    assert queue.look(both, 0.0) == []
    assert queue.look(both, PATIENCE - 1) == []
    assert queue.look(both, PATIENCE) == [(YOUNG, OLD)]


def test_a_single_job_and_one_that_has_its_room_are_not_queued() -> None:
    queue = Queue()
    for now in (0.0, PATIENCE, 10 * PATIENCE):
        assert queue.look([candidate(OLD), candidate(YOUNG, lacks_room=False)], now) == []


def test_a_lack_of_room_that_passes_counts_from_zero() -> None:
    queue, both = Queue(), [candidate(OLD), candidate(YOUNG)]
    queue.look(both, 0.0)
    queue.look([candidate(OLD), candidate(YOUNG, lacks_room=False)], PATIENCE - 1)
    assert queue.look(both, PATIENCE) == []


def test_those_that_wait_go_one_at_a_time_in_their_order() -> None:
    queue, waiting = Queue(), [candidate(each, False, behind=OLD) for each in (YOUNGEST, YOUNG)]
    queue.look([candidate(each) for each in (OLD, YOUNG, YOUNGEST)], 0.0)
    told = queue.look([candidate(each) for each in (OLD, YOUNG, YOUNGEST)], PATIENCE)
    assert told == [(YOUNG, OLD), (YOUNGEST, OLD)]
    assert queue.look([candidate(OLD), *waiting], PATIENCE + 1) == []
    assert queue.look([candidate(OLD, lacks_room=False), *waiting], PATIENCE + 2) == [(YOUNG, "")]
    assert queue.look(waiting[:1], PATIENCE + 3) == [(YOUNGEST, "")], "the oldest is gone"


def test_one_that_waits_tries_now_and_then_and_ever_more_seldom() -> None:
    queue, both = Queue(), [candidate(OLD), candidate(YOUNG)]
    waiting = [candidate(OLD), candidate(YOUNG, False, behind=OLD)]
    queue.look(both, 0.0)
    queue.look(both, PATIENCE)
    assert queue.look(waiting, PATIENCE + AGAIN - 1) == []
    assert queue.look(waiting, PATIENCE + AGAIN) == [(YOUNG, "")]
    begun = PATIENCE + AGAIN
    queue.look(both, begun)
    assert queue.look(both, begun + PATIENCE) == [(YOUNG, OLD)]
    assert queue.look(waiting, begun + PATIENCE + 2 * AGAIN - 1) == []
    assert queue.look(waiting, begun + PATIENCE + 2 * AGAIN) == [(YOUNG, "")]


@pytest.mark.parametrize(
    ("metadata", "spec", "is_theirs"),
    [
        ({}, {}, False),
        ({}, {"schedulerName": "default-scheduler"}, False),
        ({}, {"schedulerName": "volcano"}, True),
        ({}, {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, True),
        ({}, {"schedulingGroup": {"podGroupName": "g"}}, True),
        ({"labels": {"kueue.x-k8s.io/queue-name": "q"}}, {}, True),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, {}, True),
    ],
)
def test_the_order_of_another_queue_is_left_alone(metadata: Document, spec: Document, is_theirs: bool) -> None:
    asked = job({"worker": {"template": {**template(**spec), "metadata": metadata}}})
    assert is_queued_elsewhere(asked) is is_theirs


def test_no_job_is_queued_behind_one_that_gets_nothing_whatever_becomes_free() -> None:
    hopeless = replace(candidate(OLD), placed=0)
    queue, both = Queue(), [hopeless, candidate(YOUNG)]
    queue.look(both, 0.0)
    assert queue.look(both, PATIENCE) == [(YOUNG, OLD)], "it may only have come a moment earlier"
    waiting = [hopeless, candidate(YOUNG, False, behind=OLD)]
    assert queue.look(waiting, IN_VAIN - 1) == []
    assert queue.look(waiting, IN_VAIN) == [(YOUNG, "")]
    both_lack = [hopeless, candidate(YOUNG), candidate(YOUNGEST)]
    queue.look(both_lack, IN_VAIN + 1)
    assert queue.look(both_lack, IN_VAIN + 1 + PATIENCE) == [(YOUNGEST, YOUNG)], "who has a part of it is waited for"


def test_each_namespace_has_a_turn_of_its_own() -> None:
    queue = Queue()
    many = [Candidate(JobName(f"evil/j{n:03}"), "2026-01-02T00:00:00Z", False, OLD) for n in range(200)]
    late = Candidate(JobName("good/late"), "2026-01-03T00:00:00Z", False, OLD)
    assert queue.look([*many, late], 0.0) == [(JobName("evil/j000"), ""), (JobName("good/late"), "")]
