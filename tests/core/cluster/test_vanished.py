"""What is told of pods that the watch shows no more."""

from __future__ import annotations

from copy import deepcopy

from master.core.cluster import pods, vanished
from master.core.cluster.names import JOB, Document
from master.core.events import PodGone
from tests.core.cluster.documents import recorded


def read(now: Document | None) -> PodGone | None:
    pod = running()
    seen = pods.seen(pod)
    assert seen is not None
    return vanished.read_again(pod, seen, now or {})


def running() -> Document:
    return recorded("running")


def unlabelled() -> Document:
    pod = deepcopy(running())
    del pod["metadata"]["labels"][JOB]
    return pod


def test_one_that_is_there_without_its_label_may_run_on() -> None:
    told = read(unlabelled())
    assert told is not None
    assert told.may_run_on
    assert told.reason == "its label outrider.dev/job was taken away"


def test_one_that_is_not_there_is_gone() -> None:
    told = read(None)
    assert told is not None
    assert not told.may_run_on


def test_so_is_one_whose_name_another_has_or_that_has_ended() -> None:
    other = unlabelled()
    other["metadata"]["uid"] = "another"
    over = unlabelled()
    over["status"]["phase"] = "Failed"
    leaving = unlabelled()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for now in (other, over, leaving):
        told = read(now)
        assert told is not None
        assert not told.may_run_on


def test_nothing_is_told_of_one_whose_label_is_back() -> None:
    assert read(running()) is None


def test_only_one_that_ran_and_that_nobody_was_deleting_is_read_again() -> None:
    assert vanished.may_run(running())
    deleted = running()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not vanished.may_run(deleted)
