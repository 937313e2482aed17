"""`spec.runPolicy`: until when a job may run, when one that is over goes, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outrider.master.core.k8s.elasticjob import run_policy
from outrider.master.core.k8s.elasticjob.status import status_of
from outrider.master.core.k8s.values.names import Document

MADE, LATER = "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"


def unix(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def job(policy: object, conditions: dict[str, tuple[str, str]] | None = None, **spec: object) -> Document:
    found = [{"type": kind, "status": status, "lastTransitionTime": since}
             for kind, (status, since) in (conditions or {}).items()]  # fmt: skip
    phase = "Succeeded" if "Succeeded" in (conditions or {}) else "Running"
    return {
        "metadata": {"name": "x", "creationTimestamp": MADE},
        "spec": {"runPolicy": policy, **spec},
        "status": {"phase": phase, "conditions": found},
    }


def test_a_deadline_counts_from_the_jobs_creation() -> None:
    limited = job({"activeDeadlineSeconds": 60})
    assert run_policy.ends_at(limited) == unix("2026-03-01T10:01:00")
    assert run_policy.why_it_ends(limited) == "it has run for the 60 s that spec.runPolicy.activeDeadlineSeconds allows"
    assert run_policy.ends_at(job({})) is None
    assert run_policy.ends_at(job(None)) is None


def test_the_condition_of_a_passed_deadline_has_the_reason_that_a_job_of_kubernetes_has() -> None:
    def why(policy: object, message: str) -> list[str]:
        document = {"phase": "stopped", "message": message}
        found = status_of(job(policy, replicaSpecs={"worker": {"replicas": 1}}), document, [], LATER)["conditions"]
        return [each["reason"] for each in found if each["type"] == "Failed" and each["status"] == "True"]

    limited = {"activeDeadlineSeconds": 60}
    passed = f"The job was stopped: {run_policy.why_it_ends(job(limited))}."
    assert why(limited, passed) == ["DeadlineExceeded"]
    assert why(limited, "The job was stopped: its ElasticJob was deleted.") == ["JobStopped"]
    assert why(None, "The job was stopped.") == ["JobStopped"]


def test_a_suspended_job_has_no_deadline_and_a_resumed_one_counts_from_zero() -> None:
    policy = {"activeDeadlineSeconds": 60}
    assert run_policy.ends_at(job(policy, suspend=True)) is None
    assert run_policy.ends_at(job(policy, {"Suspended": ("True", LATER)})) is None, "its status does not know yet"
    assert run_policy.ends_at(job(policy, {"Suspended": ("False", LATER)})) == unix("2026-03-01T11:01:00")


def test_the_deadline_of_a_job_that_started_again_counts_from_the_new_start() -> None:
    begun = job({"activeDeadlineSeconds": 60})
    begun["status"]["saved"] = {"begunAnew": LATER}
    assert run_policy.ends_at(begun) == unix("2026-03-01T11:01:00")


def test_a_job_that_is_over_goes_after_its_time_and_no_other_does() -> None:
    policy, over = {"ttlSecondsAfterFinished": 60}, {"Succeeded": ("True", LATER)}
    assert run_policy.expires_at(job(policy, over)) == unix("2026-03-01T11:01:00")
    assert run_policy.expires_at(job({"ttlSecondsAfterFinished": 0}, over)) == unix("2026-03-01T11:00:00")
    assert run_policy.expires_at(job(policy)) is None
    assert run_policy.expires_at(job({}, over)) is None
    assert run_policy.expires_at(job(policy, over, adopts={"kind": "Job"})) is None


def test_only_all_takes_the_pods_of_a_job_that_is_over() -> None:
    kept = {policy: run_policy.leaves_no_pod(job({"cleanPodPolicy": policy})) for policy in ("All", "Running", "None")}
    assert kept == {"All": True, "Running": False, "None": False}
    assert not run_policy.leaves_no_pod(job(None))


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"suspend": True}, "suspend: Forbidden: not supported; use spec.suspend"),
        (
            {"backoffLimit": 3},
            "backoffLimit: Forbidden: not supported; use spec.maxRestarts for restarts in place and a role's",
        ),
        (
            {"schedulingPolicy": {}},
            "schedulingPolicy: Forbidden: not supported; set schedulerName, priorityClassName and the labels of your",
        ),
        ({"x": 3}, "x: Forbidden: not supported; supported fields: cleanPodPolicy, ttlSecondsAfterFinished,"),
    ],
)
def test_what_is_wrong_is_named(policy: object, said: str) -> None:
    (sentence,) = run_policy.objections(job(policy))
    assert said in sentence
    assert sentence.startswith("spec.runPolicy")


def test_what_means_nothing_for_the_pods_of_another_owner_is_refused() -> None:
    found = list(run_policy.objections(job({"cleanPodPolicy": "All", "activeDeadlineSeconds": 5}, adopts={})))
    why = "Forbidden: not supported with spec.adopts; set it on the pods' controller"
    assert found == [f"spec.runPolicy.{field}: {why}" for field in ("cleanPodPolicy", "activeDeadlineSeconds")]


def test_nothing_is_said_where_all_is_well() -> None:
    policy = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 1}
    for good in (policy, {}, None, {"suspend": None}):
        assert list(run_policy.objections(job(good))) == []
