"""Events about pods that have left the watch."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from outrider.master.core.events import PodGone
from outrider.master.core.k8s.pods import disappeared, observe
from outrider.master.core.k8s.values import identity
from outrider.master.core.k8s.values.names import JOB, SIDECAR_CONTAINER, Document
from tests.unit.master.core.k8s.documents import recorded

PODS = Path(__file__).parents[1] / "data/pods"


def read(now: Document | None) -> PodGone | None:
    pod = running()
    seen = observe.seen(pod)
    assert seen is not None
    return disappeared.read_again(pod, seen, now or {})


def running() -> Document:
    """The recording has no variables."""
    pod = recorded("running")
    spoken_for = {"name": "OUTRIDER_JOB", "value": str(identity.job_of(pod))}
    sidecar = next(each for each in pod["spec"]["containers"] if each["name"] == SIDECAR_CONTAINER)
    sidecar["env"] = [{"name": "OUTRIDER_LOG", "value": "json"}, spoken_for]
    return pod


def unlabelled() -> Document:
    pod = deepcopy(running())
    del pod["metadata"]["labels"][JOB]
    return pod


def test_one_that_is_there_without_its_label_may_run_on() -> None:
    told = read(unlabelled())
    assert told is not None
    assert told.may_run_on
    assert told.reason == "its label outrider.dev/job was removed"


def labelled(job: str) -> Document:
    pod = deepcopy(running())
    pod["metadata"]["labels"][JOB] = job
    return pod


def test_one_that_has_the_label_of_another_job_may_run_on_too() -> None:
    told = read(labelled("another"))
    assert told is not None
    assert told.may_run_on
    assert told.reason == "its label outrider.dev/job is another now"


def test_a_pod_belongs_to_the_job_that_it_was_made_for_as_long_as_its_label_says_so() -> None:
    job = identity.job_of(running())
    for pod, is_out in ((running(), False), (labelled("another"), True), (unlabelled(), True)):
        assert disappeared.made_for(pod) == job
        assert disappeared.is_taken_out(pod) is is_out


@pytest.mark.parametrize("path", sorted(PODS.glob("*.injected.yaml")), ids=lambda path: path.stem)
def test_what_the_webhook_makes_has_the_label_of_the_job_that_it_was_made_for(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    pod = document if document["kind"] == "Pod" else document["spec"]["template"]
    pod["metadata"]["namespace"] = "research"
    assert disappeared.made_for(pod) == identity.job_of(pod) is not None
    assert not disappeared.is_taken_out(pod)


def test_a_pod_without_a_sidecar_is_in_the_job_that_its_label_says() -> None:
    pod = labelled("another")
    pod["spec"]["containers"] = [each for each in pod["spec"]["containers"] if each["name"] != SIDECAR_CONTAINER]
    assert disappeared.made_for(pod) == identity.job_of(pod)
    assert not disappeared.is_taken_out(pod)


def test_what_a_new_list_has_not_and_may_run_is_read_again() -> None:
    there, missing, leaving = running(), running(), running()
    for number, pod in enumerate((there, missing, leaving)):
        pod["metadata"]["uid"] = str(number)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert disappeared.missing((there, missing, leaving), [there]) == [missing]


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


def test_a_pod_whose_label_is_back_gives_no_event() -> None:
    assert read(running()) is None


def test_only_a_running_pod_that_was_not_being_deleted_is_read_again() -> None:
    assert disappeared.may_run(running())
    deleted = running()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not disappeared.may_run(deleted)
