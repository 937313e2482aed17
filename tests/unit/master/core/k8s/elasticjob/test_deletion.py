"""A job that was deleted: which pods are its own, whether it ends, and how long it has."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.master.core.k8s.elasticjob import deletion
from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.values.names import SAVE_SIGNAL, Document
from outrider.wire.ids import JobName
from tests.unit.master.core.k8s.documents import job

NOW = 1767265200.0
"""2026-01-01T11:00:00Z."""
OURS = job()
ADOPTED = job(adopts={"apiVersion": "batch/v1", "kind": "Job", "name": "mnist"})
ADOPTED["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "mnist", "uid": "the-owners", "controller": True}]


def pod(
    uid: str = "job-uid", kind: str = "ElasticJob", phase: str = "Running", made: str = "10:00", **said: Any
) -> Document:
    controller = {"kind": kind, "uid": uid, "controller": True}
    return {
        "metadata": {"creationTimestamp": f"2026-01-01T{made}:00Z", "ownerReferences": [controller], **said},
        "spec": {"terminationGracePeriodSeconds": 60},
        "status": {"phase": phase},
    }


def owner(uid: str = "the-owners", made: str = "09:00", **metadata: Any) -> Document:
    return {"metadata": {"uid": uid, "creationTimestamp": f"2026-01-01T{made}:00Z", **metadata}}


def test_a_pod_of_an_elasticjob_of_the_same_name_is_not_its_own() -> None:
    assert deletion.is_its(pod(), OURS)
    assert not deletion.is_its(pod("the-job-before"), OURS)
    assert deletion.is_its(pod(ownerReferences=[]), OURS), "left by --cascade=orphan"
    assert deletion.is_its(pod("the-owners", "Job"), ADOPTED)


@pytest.mark.parametrize(
    ("read", "why"),
    [
        ({}, "Job mnist was deleted"),
        (owner(deletionTimestamp="2026-01-01T11:00:00Z"), "Job mnist was deleted"),
        (owner("another"), "Job mnist was deleted"),
        (owner(), ""),
        (None, ""),
    ],
)
def test_a_job_of_another_controller_ends_where_that_one_does(read: Document | None, why: str) -> None:
    assert deletion.why_it_ends(ADOPTED, read) == why


def test_a_job_of_its_own_ends() -> None:
    assert deletion.why_it_ends(OURS, None) == "its ElasticJob was deleted"


def test_pods_that_the_next_owner_of_that_name_has_made_are_its_own() -> None:
    old, new = pod("the-owners", "Job"), pod("another", "Job", made="11:00")
    assert deletion.still_its([old, new], ADOPTED, owner("another", made="10:59")) == [old]
    assert deletion.still_its([old, new], ADOPTED, {}) == [old, new], "there is no other"
    assert deletion.still_its([old], ADOPTED, owner(deletionTimestamp="2026-01-01T11:00:00Z")) == [old]


def test_it_has_the_shortest_grace_of_those_that_run() -> None:
    sooner, over = pod(deletionGracePeriodSeconds=20), pod(deletionGracePeriodSeconds=0, phase="Succeeded")
    assert deletion.seconds_left([pod(), sooner, over], NOW) == 20.0
    assert deletion.seconds_left([pod()], NOW) == 60.0
    assert deletion.seconds_left([], NOW) == 30.0


@pytest.mark.parametrize(("later", "left"), [(0, 30.0), (12, 18.0), (31, 0.0), (-3600, 30.0)])
def test_of_a_grace_that_runs_what_is_left_of_it_counts(later: int, left: float) -> None:
    going = pod(deletionTimestamp="2026-01-01T11:00:30Z", deletionGracePeriodSeconds=30)
    assert deletion.seconds_left([going], NOW + later) == left


def test_pods_whose_elasticjob_is_gone_tell_the_next_master_what_it_has_to_know() -> None:
    pods = [pod("gone", annotations={SAVE_SIGNAL: "SIGUSR1"}), pod("gone"), pod("gone", phase="Succeeded")]
    left = deletion.left_by(JobName("research/digits"), pods, job(), NOW)
    assert left is not None
    assert (left["metadata"]["name"], left["metadata"]["namespace"], left["metadata"]["uid"]) == (
        "digits",
        "research",
        "gone",
    )
    spec = elasticjob_spec.spec_of(left)
    assert (spec.replicas, spec.save_signal, spec.silent_after, spec.is_adopted) == (2, "SIGUSR1", 30.0, False)
    assert all(deletion.is_its(each, left) for each in pods)
    unasked = deletion.left_by(JobName("research/digits"), [pod("gone")], job(), NOW)
    assert unasked is not None
    assert elasticjob_spec.spec_of(unasked).save_signal == ""


def test_pods_that_have_an_elasticjob_or_have_ended_give_no_job() -> None:
    key = JobName("research/digits")
    assert deletion.left_by(key, [pod()], job(), NOW) is None
    assert deletion.left_by(key, [pod("gone", phase="Failed")], None, NOW) is None
    assert deletion.left_by(key, [], None, NOW) is None


def test_pods_of_another_controller_are_left_where_all_of_them_go_and_no_elasticjob_is_there() -> None:
    key, going = JobName("research/mnist"), {"deletionTimestamp": "2026-01-01T11:00:30Z"}
    pods = [_of_a_job(**going), _of_a_job(**going)]
    left = deletion.left_by(key, pods, None, NOW)
    assert left is not None
    assert left["spec"]["adopts"] == {"apiVersion": "batch/v1", "kind": "Job", "name": "mnist"}
    assert elasticjob_spec.spec_of(left).is_adopted
    assert deletion.why_it_ends(left, {}) == "Job mnist was deleted"
    assert deletion.left_by(key, [*pods, _of_a_job()], None, NOW) is None, "one is evicted, the others stay"
    assert deletion.left_by(key, pods, ADOPTED, NOW) is None


def _of_a_job(**said: Any) -> Document:
    controller = {"apiVersion": "batch/v1", "kind": "Job", "name": "mnist", "uid": "the-owners", "controller": True}
    return pod("the-owners", "Job", ownerReferences=[controller], **said)


def test_pods_must_be_gone_before_their_names_can_be_used() -> None:
    assert deletion.goes(pod())
    assert deletion.goes(pod(phase="Succeeded")), "the garbage collector is about to take it"
    assert not deletion.goes(pod(phase="Succeeded", ownerReferences=[]))


def test_only_in_the_foreground_are_pods_deleted_before_their_job() -> None:
    assert not deletion.is_foreground(OURS)
    held = {**OURS, "metadata": {**OURS["metadata"], "finalizers": ["foregroundDeletion"]}}
    assert deletion.is_foreground(held)
