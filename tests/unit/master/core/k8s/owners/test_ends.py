"""Ends of the owners of pods."""

from __future__ import annotations

import pytest

from outrider.master.core.events import OwnerEnded
from outrider.master.core.k8s.owners.completion import end_of, is_suspended
from outrider.master.core.k8s.values.names import Document


def owner(*conditions: object, kind: str = "Job") -> Document:
    return {"kind": kind, "metadata": {"name": "train"}, "status": {"conditions": list(conditions)}}


def condition(kind: str, status: str = "True", **words: str) -> Document:
    return {"type": kind, "status": status, **words}


def test_a_job_that_kubernetes_gave_up_says_why() -> None:
    words = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit."}
    why = "Job train has failed (BackoffLimitExceeded: Job has reached the specified backoff limit)"
    assert end_of(owner(condition("Failed", **words))) == OwnerEnded(False, why)


@pytest.mark.parametrize(("kind", "word"), [("Job", "Complete"), ("JobSet", "Completed"), ("PyTorchJob", "Succeeded")])
def test_an_owner_that_is_complete_is_over_too(kind: str, word: str) -> None:
    assert end_of(owner(condition(word), kind=kind)) == OwnerEnded(True, f"{kind} train is complete")


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        {"conditions": None},
        {"conditions": ["Failed"]},
        {"conditions": [{"type": "Failed", "status": "False"}, {"type": "Suspended", "status": "True"}]},
    ],
)
def test_anything_else_is_no_end(status: object) -> None:
    assert end_of({"kind": "Job", "metadata": {"name": "train"}, "status": status}) is None


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"suspend": True}, True),
        ({"runPolicy": {"suspend": True}}, True),
        ({"suspend": False}, False),
        ({"suspend": "yes", "runPolicy": []}, False),
        ({}, False),
    ],
)
def test_an_owner_says_itself_whether_it_is_suspended(spec: Document, found: bool) -> None:
    assert is_suspended({**owner(), "spec": spec}) is found
