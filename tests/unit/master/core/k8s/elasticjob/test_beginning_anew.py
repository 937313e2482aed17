"""Verdicts on pods whose job is over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.master.core.k8s.elasticjob.begin_anew import (
    LOOK_AGAIN,
    NOT_SHOWN,
    Judged,
    PartOfIt,
    Retry,
    begun,
    begun_anew,
    ended,
    is_late,
    is_of_before,
    judged,
    since,
    why_anew,
)
from outrider.master.core.k8s.owners.revisions import UNREADABLE, Made, kept, made, owner_of
from outrider.master.core.k8s.values.names import Document

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


def pod(made: object = "2026-03-01T00:00:01Z", owner: str = "owner", **more: Any) -> Document:
    references = [{"kind": "any", "uid": owner, "controller": True}]
    return {"metadata": {"uid": "new", "creationTimestamp": made, "ownerReferences": references, **more}}


def of(kind: str, owner: str = "owner", revision: str = "one") -> Made:
    return Made(kind, "train", owner, revision)


def with_revision(kind: str, revision: str = "one", owner: str = "owner") -> Document:
    found = over(kind)
    found["status"]["saved"] |= {"owner": owner, "revision": revision}
    return found


@pytest.mark.parametrize(
    ("job", "uid", "shown", "by", "kind", "words"),
    [
        (over(), "old", pod(), None, PartOfIt, "is over"),
        (over(""), "new", pod(), None, PartOfIt, "is over"),
        (over(), "new", None, None, Retry, "has not shown"),
        (over(), "new", pod(END), None, Judged, "this pod was created before the end"),
        (over(), "new", pod("2026-02-28T23:59:59Z"), None, Judged, "this pod was created before the end"),
        (over(), "new", pod(END), of("StatefulSet", "another"), Judged, "this pod was created before the end"),
        (over(), "new", pod(), None, Retry, "has not been read yet"),
        (over(), "new", pod(), UNREADABLE, Retry, "kubectl delete ej train -n a"),
        (over(), "new", pod(), of("StatefulSet"), Retry, "kubectl delete ej train -n a"),
        (over(), "new", pod(), of("StatefulSet", "another"), Retry, "about to start again: StatefulSet"),
        (
            with_revision("StatefulSet"),
            "new",
            pod(),
            of("StatefulSet", revision="two"),
            Retry,
            "about to start again: the template",
        ),
        (over("PyTorchJob"), "new", pod(), of("PyTorchJob"), Retry, "kubectl delete ej train -n a"),
        (over("Job"), "new", pod(owner="another"), of("Job", "another"), Retry, "about to start again: Job train"),
        (over("Job", conditions=[]), "new", pod(owner="another"), None, Retry, "an earlier Job train"),
        (over("Job"), "new", pod(), of("Job"), Judged, "backoffLimit"),
        (with_revision("Job"), "new", pod(), of("Job", revision="two"), Judged, "backoffLimit"),
        (over("JobSet"), "new", pod(owner="its Job"), None, Retry, "has not been read yet"),
        (over("JobSet"), "new", pod(owner="its Job"), UNREADABLE, Retry, "has not been read yet"),
        (over("JobSet"), "new", pod(owner="its Job"), of("JobSet"), Judged, "a further attempt of JobSet train"),
        (
            over("JobSet"),
            "new",
            pod(owner="its Job"),
            of("JobSet", "another"),
            Retry,
            "about to start again: JobSet train",
        ),
        (over("Deployment"), "new", pod(), None, Judged, "a further attempt"),
    ],
)
def test_the_first_rule_that_holds_counts(
    job: Document, uid: str, shown: Document | None, by: Made | None, kind: type, words: str
) -> None:
    found = judged("a/train", ended(job), uid, shown, by)
    assert isinstance(found, kind)
    assert words in found.reason
    assert "secret" not in found.reason, "whoever reaches the master is told it"


@pytest.mark.parametrize("state", [[], "x", {"members": [1]}, {"members": {"a": 3, "b": [], "c": [None, 0]}}])
def test_a_status_of_any_shape_rejects_no_pod_for_good(state: object) -> None:
    for odd in (over(state=state), over(saved={"state": "{"}), over(saved=7), over(conditions=["x"])):
        assert isinstance(judged("a/train", ended(odd), "new", pod()), Retry)
    assert isinstance(judged("a/train", ended(over()), "new", pod(made=7)), Retry)


@pytest.mark.parametrize("kind", ["StatefulSet", "PyTorchJob", "JobSet"])
def test_a_job_starts_again_with_pods_of_another_owner_or_revision(kind: str) -> None:
    job, new = ended(with_revision(kind, "one both")), pod()
    assert not why_anew(job, new, of(kind))
    assert not why_anew(job, new, of(kind, revision="both")), "a roll-out was under way at its end"
    assert not why_anew(job, new, of(kind, revision="")), "its revision is not known"
    assert not why_anew(ended(over(kind)), new, of(kind, revision="two")), "that of the end is not kept"
    assert "template" in why_anew(job, new, of(kind, revision="two"))
    assert "created again" in why_anew(job, new, of(kind, "another"))


@pytest.mark.parametrize(
    ("job", "new", "by"),
    [
        (over(), pod(), of("Pod", "another")),
        (over(), pod(), None),
        (over(), pod(END), of("StatefulSet", "another")),
        (over(), pod(uid="old"), of("StatefulSet", "another")),
        (over(), pod(deletionTimestamp=END), of("StatefulSet", "another")),
        (over(), {**pod(), "status": {"phase": "Failed"}}, of("StatefulSet", "another")),
        (over("Pod"), pod(), of("StatefulSet", "another")),
        (over(conditions=[]), pod(), of("StatefulSet", "another")),
        (over(), pod(made=7), of("StatefulSet", "another")),
    ],
    ids=["lone", "unread", "before", "member", "going", "ended", "adopts-pods", "end-unknown", "age-unknown"],
)
def test_a_job_never_starts_again_by_guess(job: Document, new: Document, by: Made | None) -> None:
    assert why_anew(ended(job), new, by) == ""


def test_a_job_that_starts_again_keeps_only_its_counters() -> None:
    state = {"term": 3, "number": 5, "version": 70, "next_id": {"worker": 4}, "reserved": [3, 15], "faults": [["x"]]}
    job = over(state=state, exitCode=1, faults=[{}], lastFault={}, generation="3.5", restarts=4)
    job["status"]["conditions"].insert(0, {"type": "Created", "status": "True"})
    job["status"]["saved"] |= {"owner": "owner", "revision": "one"}
    status = begun(job, "2026-03-01T00:00:02Z")
    assert set(status) == {"phase", "conditions", "generation", "observedGeneration", "saved"}
    assert status["phase"] == "Created"
    assert [each["type"] for each in status["conditions"]] == ["Created"]
    assert status["generation"] == "3.5", "the webhook reads there that it was trained"
    assert set(status["saved"]) == {"term", "state", "begunAnew"}
    assert json.loads(status["saved"]["state"]) == {
        "anew": True, "term": 3, "number": 15, "version": 70, "next_id": {"worker": 4}, "reserved": [3, 15]
    }  # fmt: skip


@pytest.mark.parametrize("state", [[], "x", {"number": "y", "reserved": 3, "next_id": 7}, {"reserved": ["a", {}]}])
def test_numbers_of_any_shape_end_no_beginning(state: object) -> None:
    left = json.loads(begun(over(state=state), END)["saved"]["state"])
    assert left == {"anew": True, "term": 0, "number": 0, "version": 0, "next_id": {}, "reserved": [0, 0]}


def test_pods_from_before_the_new_start_do_not_belong_to_the_job() -> None:
    new = pod("2026-03-01T01:00:00Z", labels={"controller-revision-hash": "two"})
    earlier = pod("2026-03-01T00:59:58Z", labels={"controller-revision-hash": "two"})
    older = pod("2026-03-01T00:10:00Z", labels={"controller-revision-hash": "one"})
    moment = since(ended(over()), new, [new, earlier, older])
    assert [is_of_before(each, moment) for each in (new, earlier, older, pod(END), pod(made=None))] == [
        False, False, True, True, False
    ]  # fmt: skip
    job = {**over(), "status": begun(over(), moment)}
    assert begun_anew(job) == moment
    assert is_late(over(), moment), "it is shown as it was"
    assert not is_late(job, moment)


def test_the_end_keeps_of_whose_pods_its_members_were_and_keeps_it() -> None:
    member = pod(uid="old", labels={"controller-revision-hash": "one"})
    other = pod(labels={"controller-revision-hash": "two"})
    at_the_end = over()["status"]
    running = over(phase="Running")
    status = kept(at_the_end, running, [member, other], None)
    assert status["saved"] == {**at_the_end["saved"], "owner": "owner", "revision": "one"}
    again = kept(at_the_end, {**over(), "status": status}, [other], None)
    assert again["saved"] == status["saved"]
    assert kept(running["status"], running, [member], None) == running["status"]
    assert "revision" not in kept(at_the_end, running, [other], None)["saved"], "no pod of a member is there"


def test_of_owners_without_a_revision_their_templates_tell_it() -> None:
    def jobset(image: str, uid: str = "owner") -> Document:
        template = {"spec": {"template": {"spec": {"containers": [{"image": image}]}}}}
        spec = {"replicatedJobs": [{"name": "a", "template": template}], "suspend": False}
        return {"kind": "JobSet", "metadata": {"name": "train", "uid": uid}, "spec": spec}

    status = kept(over()["status"], over("JobSet", phase="Running"), [], jobset("train:1"))
    job = ended({**over("JobSet"), "status": status})
    assert not why_anew(job, pod(), made(pod(), jobset("train:1")))
    assert "template" in why_anew(job, pod(), made(pod(), jobset("train:2")))
    assert "created again" in why_anew(job, pod(), made(pod(), jobset("train:1", "another")))
    unread = kept(over()["status"], over("JobSet", phase="Running"), [], None)
    assert not why_anew(ended({**over("JobSet"), "status": unread}), pod(), made(pod(), jobset("train:2")))


def test_a_pod_that_waits_asks_soon_where_something_is_about_to_happen() -> None:
    def seconds(by: Made | None) -> float:
        found = judged("a/train", ended(over()), "new", pod(), by)
        assert isinstance(found, Retry)
        return found.seconds

    waits = [seconds(by) for by in (None, of("StatefulSet", "another"), of("StatefulSet"), UNREADABLE)]
    assert waits == [NOT_SHOWN, NOT_SHOWN, LOOK_AGAIN, LOOK_AGAIN]


@pytest.mark.parametrize(
    ("owners", "uid"),
    [
        ([{"uid": "one"}], "one"),
        ([], ""),
        ([{"kind": "Pipeline", "name": "p", "uid": "p"}, {"kind": "Job", "name": "train", "uid": "its"}], "its"),
        ([{"kind": "Pipeline", "name": "p", "uid": "p"}, {"kind": "Job", "name": "other", "uid": "o"}], ""),
    ],
)
def test_of_several_owners_it_stands_for_the_one_that_it_adopts(owners: list[Document], uid: str) -> None:
    job = over("Job")
    job["metadata"]["ownerReferences"] = owners
    assert owner_of(job) == uid
