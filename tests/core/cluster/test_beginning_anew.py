"""What becomes of a pod whose job is over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from master.core.cluster.beginning_anew import Judged, PartOfIt, Retry, ended, judged
from master.core.cluster.names import Document

END = "2026-03-01T00:00:00Z"


def over(kind: str = "StatefulSet", state: object = None, **status: Any) -> Document:
    saved = {"members": {"train-0": ["old", 0, None]}} if state is None else state
    return {
        "metadata": {"name": "train", "namespace": "a", "uid": "job", "ownerReferences": [{"uid": "owner"}]},
        "spec": {"adopts": {"kind": kind, "name": "train"}} if kind else {},
        "status": {
            "phase": "Failed",
            "message": "secret words",
            "conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": END}],
            "saved": {"term": 1, "state": json.dumps(saved)},
            **status,
        },
    }


def pod(made: object = "2026-03-01T00:00:01Z", owner: str = "owner") -> Document:
    references = [{"kind": "any", "uid": owner, "controller": True}]
    return {"metadata": {"uid": "new", "creationTimestamp": made, "ownerReferences": references}}


@pytest.mark.parametrize(
    ("job", "uid", "shown", "kind", "words"),
    [
        (over(), "old", pod(), PartOfIt, "is over"),
        (over(""), "new", pod(), PartOfIt, "is over"),
        (over(), "new", None, Retry, "has not shown"),
        (over(), "new", pod(END), Judged, "before its end"),
        (over(), "new", pod("2026-02-28T23:59:59Z"), Judged, "before its end"),
        (over(), "new", pod(), Retry, "kubectl delete ej train -n a"),
        (over("PyTorchJob"), "new", pod(), Retry, "kubectl delete ej train -n a"),
        (over("Job"), "new", pod(owner="another"), Retry, "an earlier Job train"),
        (over("Job"), "new", pod(), Judged, "backoffLimit"),
        (over("JobSet"), "new", pod(owner="its Job"), Judged, "a further attempt of JobSet train"),
    ],
)
def test_the_first_rule_that_holds_counts(
    job: Document, uid: str, shown: Document | None, kind: type, words: str
) -> None:
    found = judged("a/train", ended(job), uid, shown)
    assert isinstance(found, kind)
    assert words in found.reason
    assert "secret" not in found.reason, "whoever reaches the master is told it"


@pytest.mark.parametrize("state", [[], "x", {"members": [1]}, {"members": {"a": 3, "b": [], "c": [None, 0]}}])
def test_a_status_of_any_shape_refuses_nobody_for_good(state: object) -> None:
    for odd in (over(state=state), over(saved={"state": "{"}), over(saved=7), over(conditions=["x"])):
        assert isinstance(judged("a/train", ended(odd), "new", pod()), Retry)
    assert isinstance(judged("a/train", ended(over()), "new", pod(made=7)), Retry)
