"""The status of an ElasticJob, as kubectl shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.master.core.k8s.elasticjob.event import QUIET, event_of
from outrider.master.core.k8s.elasticjob.status import MEMBERS_SHOWN, STRAGGLERS_SHOWN, left_by, status_of
from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.documents import job, recorded, worker

BEFORE, NOW = "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"
SAVED = {"term": 2, "state": '{"term":2,"number":3}'}


def pod(name: str, member: str, role: str = "worker") -> Document:
    found = recorded(name)
    labels = found["metadata"]["labels"]
    labels["outrider.dev/member"], labels["outrider.dev/role"] = member, role
    found["metadata"]["name"] = f"mnist-{member}"
    return found


def core(phase: str = "running", members: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """The core's document, as a SaveStatus action carries it."""
    rows = [
        {"id": member, "role": "worker", "rank_index": index, "state": state, "mode": "fork"}
        for index, (member, state) in enumerate((members or {}).items())
    ]
    known = {
        "phase": phase,
        "generation": "2.3",
        "world": 4,
        "step": 120,
        "restarts": 2,
        "goodput": 0.96249,
        "message": "",
        "exit_code": None,
        "faults": [],
        "members": rows,
        "saved": {"term": 2, "number": 3},
    }
    return known | more


def kept(asked: Document, status: Document) -> Document:
    return asked | {"status": status}


def conditions(status: Document) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


def condition(status: Document, kind: str) -> Document:
    found: Document = next(c for c in status["conditions"] if c["type"] == kind)
    return found


def test_a_job_of_which_the_core_has_said_nothing_is_created() -> None:
    status = status_of(job(), {}, [], NOW)
    assert status["phase"] == "Created"
    assert conditions(status) == {"Created": "True", "Scheduled": "False", "Running": "False"}
    assert condition(status, "Created")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert status["selector"] == "outrider.dev/job=mnist,outrider.dev/role=worker"
    assert status["observedGeneration"] == 3
    assert "goodput" not in status
    assert "exitCode" not in status


def test_a_running_job_shows_its_world_its_members_and_its_last_fault() -> None:
    fault = {"time": BEFORE, "kind": "WorkerExited", "member": "worker-1", "reason": "Rank 1 ...", "seconds_lost": 0.2}
    told = core(members={"worker-0": "running", "worker-1": "running"}, faults=[fault])
    status = status_of(job(), told, [pod("running", "worker-0"), pod("running", "worker-1")], NOW)
    assert {field: status[field] for field in ("phase", "generation", "step", "restarts", "goodput", "workers")} == {
        "phase": "Running", "generation": "2.3", "step": 120, "restarts": 2, "goodput": 0.962, "workers": 2,
    }  # fmt: skip
    assert status["members"][0] == {"id": "worker-0", "rankIndex": 0, "state": "running", "mode": "fork",
                                    "node": "node-1"}  # fmt: skip
    assert status["lastFault"] == {"time": BEFORE, "kind": "WorkerExited", "member": "worker-1", "reason": "Rank 1 ...",
                                   "secondsLost": 0.2}  # fmt: skip
    assert status["saved"] == SAVED
    assert condition(status, "Running")["message"] == "generation 2.3, 4 ranks"


def test_pods_are_counted_by_role_and_one_that_goes_counts_nowhere() -> None:
    asked = job({"worker": worker(replicas=4), "PS": worker(), "evaluator": worker()})
    shown = [
        pod("running", "worker-0"),
        pod("unschedulable", "worker-1"),
        pod("terminating", "worker-2"),
        pod("trainer_failed", "worker-3"),
        pod("all_done", "ps-0", "ps"),
        pod("running", "x-0", "unheard-of"),
    ]
    status = status_of(asked, core(), shown, NOW)
    none = {"active": 0, "succeeded": 0, "failed": 0, "pending": 0}
    assert status["replicaStatuses"] == {
        "evaluator": none,
        "ps": none | {"succeeded": 1},
        "worker": {"active": 1, "succeeded": 0, "failed": 1, "pending": 1},
    }
    assert status["workers"] == 2


def test_an_adopted_job_counts_its_pods_whatever_its_owner_calls_them() -> None:
    adopts = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "mnist"}
    shown = [pod("running", "master-0", "master"), pod("running", "worker-0"), pod("running", "worker-1")]
    status = status_of(job({"worker": {"replicas": 3}}, adopts=adopts), core(), shown, NOW)
    assert status["replicaStatuses"] == {"worker": {"active": 3, "succeeded": 0, "failed": 0, "pending": 0}}
    assert conditions(status)["Scheduled"] == "True"
    assert status["selector"] == "outrider.dev/job=mnist"


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    asked = job()
    first = status_of(asked, core("pending"), [], BEFORE)
    then = status_of(kept(asked, first), core("running"), [], NOW)
    assert condition(first, "Running")["lastTransitionTime"] == BEFORE
    assert condition(then, "Running")["lastTransitionTime"] == NOW
    assert condition(then, "Scheduled")["lastTransitionTime"] == BEFORE
    again = status_of(kept(asked, then), core("running", generation="2.4"), [], "2026-01-01T00:03:00Z")
    assert condition(again, "Running")["lastTransitionTime"] == NOW
    assert condition(again, "Running")["message"] == "generation 2.4, 4 ranks"


def test_the_same_facts_make_the_same_status() -> None:
    asked, shown = job(), [pod("running", "worker-0"), pod("image_pull", "worker-1")]
    first = status_of(asked, core(), shown, BEFORE)
    assert status_of(kept(asked, first), core(), shown, NOW) == first


@pytest.mark.parametrize(
    ("phase", "expected", "true"),
    [
        ("pending", "Pending", set()),
        ("running", "Running", {"Running"}),
        ("restarting", "Restarting", {"Restarting"}),
        ("suspended", "Suspended", {"Suspended"}),
        ("succeeded", "Succeeded", {"Succeeded"}),
        ("failed", "Failed", {"Failed"}),
        ("stopped", "Stopped", {"Failed"}),
    ],
)
def test_each_phase_makes_one_condition_true(phase: str, expected: str, true: set[str]) -> None:
    status = status_of(job(), core(phase), [], NOW)
    assert status["phase"] == expected
    assert {kind for kind, holds in conditions(status).items() if holds == "True"} == {"Created"} | true


def test_a_suspended_job_has_no_worker_scheduled_though_its_pods_are_still_there() -> None:
    status = status_of(job(), core("suspended"), [pod("running", f"worker-{n}") for n in range(4)], NOW)
    found = condition(status, "Scheduled")
    assert (found["status"], found["reason"]) == ("False", "JobSuspended")


def test_a_condition_that_was_true_once_stays_and_says_what_is_instead() -> None:
    asked = job()
    first = status_of(asked, core("restarting", faults=[{"kind": "MemberLost"}], message="waiting"), [], BEFORE)
    assert condition(first, "Restarting")["reason"] == "MemberLost"
    then = status_of(kept(asked, first), core("running"), [], NOW)
    assert condition(then, "Restarting") == {
        "type": "Restarting", "status": "False", "reason": "JobRunning", "message": "", "lastTransitionTime": NOW,
    }  # fmt: skip


def test_a_job_is_scheduled_when_enough_workers_for_a_world_have_a_node() -> None:
    asked = job({"worker": worker(replicas=3, minReplicas=2)})
    shown = [pod("running", "worker-0"), pod("unschedulable", "worker-1"), pod("not_looked_at_yet", "worker-2")]
    status = status_of(asked, core("pending"), shown, NOW)
    assert condition(status, "Scheduled")["reason"] == "Unschedulable"
    assert condition(status, "Scheduled")["message"] == (
        "1 of 3 workers has a node; 2 are needed; worker-1: 0/2 nodes are available: 2 Insufficient lab/slot"
    )
    shown[2] = pod("creating", "worker-2")
    enough = status_of(asked, core("pending"), shown, NOW)
    assert condition(enough, "Scheduled")["status"] == "True"
    over = status_of(kept(asked, enough), core("succeeded"), [], "2026-01-01T00:03:00Z")
    assert condition(over, "Scheduled") == condition(enough, "Scheduled")


def test_a_job_that_waits_says_for_whom_and_why() -> None:
    shown = [pod("image_pull", "worker-0"), pod("config_error", "worker-1"), pod("running", "worker-2")]
    status = status_of(job(), core("pending", message="waiting for members"), shown, NOW)
    held = "worker-0: ImagePullBackOff: the image docker.io/lab/none:1 of main cannot be pulled: rpc error: "
    assert status["message"].startswith(f"waiting for members; {held}")
    assert status["message"].endswith(" (and 1 more)")
    running = condition(status, "Running")
    assert (running["status"], running["reason"]) == ("False", "PodsCannotStart")
    assert running["message"].startswith(f"2 of 3 pods cannot start; {held}")


def test_what_the_kubelet_said_first_is_kept_while_it_backs_off() -> None:
    first = "ImagePullBackOff: the image docker.io/lab/none:1 of main cannot be pulled: no such host"
    waiting = core("pending", {"worker-0": "starting"}, message="waiting for members")
    waiting["members"][0]["blocked"] = first
    status = status_of(job(), waiting, [pod("image_pull_back_off", "worker-0")], NOW)
    assert status["message"] == f"waiting for members; worker-0: {first}"
    said = waiting | {"message": f"no generation can form; worker-0: {first}"}
    assert status_of(job(), said, [pod("image_pull_back_off", "worker-0")], NOW)["message"] == said["message"]


def test_a_job_whose_pods_are_refused_says_so_in_its_message_and_conditions() -> None:
    quota = "pods is forbidden: exceeded quota: few"
    told = core("pending", {"worker-0": "starting", "worker-1": "starting"}, message="waiting for members")
    for row in told["members"]:
        row["blocked"] = quota
    status = status_of(job(), told, [], NOW)
    said = f"worker-0: its pod is rejected: {quota}"
    assert status["message"] == f"waiting for members; {said} (and 1 more)"
    running, scheduled = condition(status, "Running"), condition(status, "Scheduled")
    assert (running["status"], running["reason"]) == ("False", "CreateRejected")
    assert running["message"] == f"2 of 2 pods cannot be created; {said}"
    assert (scheduled["status"], scheduled["reason"]) == ("False", "CreateRejected")
    assert scheduled["message"] == f"0 of 0 workers have a node; 4 are needed; {said}"


def test_a_job_that_runs_with_a_refused_pod_runs() -> None:
    told = core("running", {"worker-0": "running", "worker-1": "starting"}, message="generation 2.3 runs")
    told["members"][1]["blocked"] = "exceeded quota"
    status = status_of(job({"worker": worker(replicas=2, minReplicas=1)}), told, [pod("running", "worker-0")], NOW)
    assert condition(status, "Running")["reason"] == "GenerationRunning"
    assert condition(status, "Scheduled")["message"] == "1 of 1 worker has a node; 1 is needed"
    assert status["message"] == "generation 2.3 runs; worker-1: its pod is rejected: exceeded quota"


def test_members_of_the_past_are_shown_while_their_pods_are_there() -> None:
    told = core(members={"worker-0": "failed", "worker-1": "gone", "worker-2": "replaced", "worker-3": "done"})
    status = status_of(job(), told, [pod("trainer_failed", "worker-0")], NOW)
    assert [member["id"] for member in status["members"]] == ["worker-0", "worker-3"]
    assert status["members"][0]["reason"] == "the trainer's container ended"


def test_the_status_of_a_large_job_stays_small() -> None:
    told = core(members={f"worker-{i}": "running" for i in range(10_000)}, faults=[{"kind": "WorkerExited"}] * 200)
    status = status_of(job(), told, [], NOW)
    assert len(status["members"]) == MEMBERS_SHOWN
    assert len(json.dumps(status)) < 100_000


def test_what_the_next_master_needs_is_never_lost() -> None:
    asked = kept(job(), {"saved": {"term": 7}})
    assert status_of(asked, {}, [], NOW)["saved"] == {"term": 7}
    status = status_of(asked, core(), [], NOW)
    assert status["saved"] == SAVED
    found = left_by(status)
    assert found is not None
    assert found["saved"] == {"term": 2, "number": 3}
    assert left_by({}) is left_by({"saved": {"term": 7}}) is None


def test_a_job_that_is_over_shows_how_it_ended() -> None:
    status = status_of(job(), core("failed", exit_code=3, message="Rank 0 ended with code 3."), [], NOW)
    assert status["exitCode"] == 3
    assert condition(status, "Failed")["message"] == "Rank 0 ended with code 3."


def test_a_spec_that_cannot_be_run_is_a_condition_until_it_can() -> None:
    asked, problem = job(), "spec.nprocPerNode: Invalid value: 0: must be an integer between 1 and 1024"
    wrong = status_of(asked, {}, [], BEFORE, [problem])
    assert wrong["phase"] == "Pending"
    assert wrong["message"] == f"the spec is invalid: {problem}"
    assert condition(wrong, "Valid")["status"] == "False"
    right = status_of(kept(asked, wrong), core(), [], NOW)
    assert condition(right, "Valid") == {
        "type": "Valid", "status": "True", "reason": "SpecAccepted", "message": "", "lastTransitionTime": NOW,
    }  # fmt: skip


# -- Events -------------------------------------------------------------------------------------------------------
def event(kind: str = "MemberLost", member: str | None = "worker-1", now: str = NOW, **more: Any) -> Document:
    made = event_of(more.get("of", job()), kind, f"{member} is lost.", "warning", member, now)
    assert made is not None
    return made


def test_an_announcement_is_an_event_about_the_job_and_names_the_pod() -> None:
    made = event()
    assert made["involvedObject"] == {
        "apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob", "namespace": "research", "name": "mnist",
        "uid": "job-uid",
    }  # fmt: skip
    assert made["related"]["name"] == "mnist-worker-1"
    assert (made["type"], made["reason"], made["message"]) == ("Warning", "MemberLost", "worker-1 is lost.")
    assert made["metadata"]["namespace"] == "research"
    assert made["metadata"]["name"].startswith("mnist.")
    assert "related" not in event("JobStarted", None)


def test_a_member_of_another_owner_has_its_pods_own_name() -> None:
    adopted = job({"worker": {"replicas": 2}}, adopts={"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "gpt"})
    assert event(member="gpt-1", of=adopted)["related"]["name"] == "gpt-1"


def test_an_event_that_is_sent_twice_is_one_object_and_a_later_one_is_another() -> None:
    assert event()["metadata"]["name"] == event()["metadata"]["name"]
    names = {
        event()["metadata"]["name"],
        event(now=BEFORE)["metadata"]["name"],
        event("MemberGone")["metadata"]["name"],
        event(member="worker-2")["metadata"]["name"],
    }
    assert len(names) == 4


@pytest.mark.parametrize("kind", sorted(QUIET))
def test_kinds_that_occur_once_per_member_or_save_become_no_event(kind: str) -> None:
    assert event_of(job(), kind, "x", "normal", "worker-0", NOW) is None


def test_memory_and_nodes_are_shown_where_replacements_differ_for_them() -> None:
    told = core(members={"worker-0": "running"}, memory={"1": 1400 << 20}, excluded_nodes=["node-2"])
    status = status_of(job(), told, [pod("running", "worker-0")], NOW)
    assert (status["memory"], status["excludedNodes"]) == ({"1": "1400Mi"}, ["node-2"])
    status = status_of(job(), core(memory={}, excluded_nodes=[]), [], NOW)
    assert not {"memory", "excludedNodes"} & status.keys()


def test_slow_members_and_the_newest_save_are_shown_and_few_of_many() -> None:
    slow = [{"member": f"worker-{n}", "rank": n, "node": "n1", "factor": 1.5, "own_seconds": 0.3, "others_seconds": 0.2,
             "cause": "cpu", "reason": f"worker-{n} is a straggler"} for n in range(40)]  # fmt: skip
    status = status_of(job(), core(stragglers=slow, checkpoint_saved_at=NOW), [], NOW)
    assert status["checkpointSavedAt"] == NOW
    assert len(status["stragglers"]) == STRAGGLERS_SHOWN
    assert status["stragglers"][1] == {
        "member": "worker-1", "rank": 1, "node": "n1", "cause": "cpu", "reason": "worker-1 is a straggler",
        "ownSeconds": 0.3, "othersSeconds": 0.2,
    }  # fmt: skip
    assert not {"stragglers", "checkpointSavedAt"} & status_of(job(), core(), [], NOW).keys()


def test_a_member_is_shown_with_the_memory_that_its_container_may_use() -> None:
    told = core(members={"worker-0": "failed"})
    (member,) = status_of(job(), told, [pod("out_of_memory", "worker-0")], NOW)["members"]
    assert member["memory"] == "20Mi"


def test_pods_of_another_installation_are_why_a_job_does_not_run() -> None:
    why = "worker-0 was created for another Outrider installation ..."
    told = core("pending", {"worker-0": "unsupervised", "worker-1": "ready"}, message=why)
    status = status_of(job(), told, [pod("running", "worker-0"), pod("running", "worker-1")], NOW)
    running = condition(status, "Running")
    assert (running["status"], running["reason"], running["message"]) == ("False", "KeyMismatch", why)
    assert status["message"] == why
    status = status_of(job(), core("running", {"worker-0": "unsupervised"}), [pod("running", "worker-0")], NOW)
    assert condition(status, "Running")["reason"] == "GenerationRunning"


def test_a_job_that_waits_behind_another_one_says_so_in_its_condition() -> None:
    said = core(phase="pending", message="is queued behind research/old, which is older and lacks room too")
    scheduled = condition(status_of(job(), said, [], NOW), "Scheduled")
    assert scheduled["message"].endswith(
        "needed; the job is queued behind research/old, which is older and lacks room too"
    )


def test_saves_that_are_not_whole_are_a_condition_for_as_long_as_they_are_so() -> None:
    why = "/data/last.pt is written over, because there is no room beside it"
    asked = job()
    status = status_of(asked, core(non_atomic_saves={"worker-0": why}), [], NOW)
    found = condition(status, "CheckpointsNotAtomic")
    assert (found["status"], found["reason"], found["message"]) == (
        "True",
        "InsufficientDiskSpace",
        f"worker-0: {why}.",
    )
    later = status_of(kept(asked, status), core(), [], NOW)
    assert conditions(later)["CheckpointsNotAtomic"] == "False"
    assert "CheckpointsNotAtomic" not in conditions(status_of(asked, core(), [], NOW))


def test_an_event_has_no_character_that_a_terminal_obeys() -> None:
    event = event_of(
        job(), "WorkerExited", "a\x1b[31mb\r\nWarning  Fake\u202ec", "warning", None, "2026-01-01T00:00:00Z"
    )
    assert event is not None
    assert event["message"] == "a [31mb  Warning  Fake c"


@pytest.mark.parametrize(
    ("kind", "told", "then", "said"),
    [
        ("NetworkFault", {"network": {"down": [{"reason": "worker-0 and worker-1 do not see each other."}]}},
         ("True", "LinkDown", "worker-0 and worker-1 do not see each other."), ("False", "LinksHealthy", "")),
        ("MembersUnreachable", {"unreachable": ["worker-1"]},
         ("True", "NeverConnected", "worker-1 runs, but its sidecar has"), ("False", "AllConnected", "")),
        ("Supervised", {"dry_run": ["stop generation 2.3 on worker-0: a", "resize to 3: b"]},
         ("False", "Observed", "The job is only observed; nothing is done. resize to 3: b stop generation 2.3 on"),
         ("True", "Supervised", "")),
    ],
)  # fmt: skip
def test_what_has_passed_is_said_to_have_passed_and_what_never_was_is_not_said(
    kind: str, told: dict[str, Any], then: tuple[str, str, str], said: tuple[str, str, str]
) -> None:
    def row(status: Document) -> tuple[str, str, str]:
        found = condition(status, kind)
        return found["status"], found["reason"], found.get("message", "")

    well = status_of(job(), core(), [], BEFORE)
    assert kind not in conditions(well)
    wrong = status_of(kept(job(), well), core(**told), [], BEFORE)
    assert row(wrong)[:2] == then[:2]
    assert row(wrong)[2].startswith(then[2])
    assert row(status_of(kept(job(), wrong), core(), [], NOW)) == said


def test_of_many_who_are_not_heard_some_are_named() -> None:
    status = status_of(job(), core(unreachable=[f"worker-{n}" for n in range(20)]), [], NOW)
    assert " more run, but their sidecars have" in condition(status, "MembersUnreachable")["message"]


def test_followed_data_positions_are_shown_with_the_notes_of_the_loaders() -> None:
    data = {"elastic": True, "samples_repeated": 3, "notes": []}
    assert status_of(job(), core(data=data), [], NOW)["data"] == {"elastic": True, "samplesRepeated": 3, "notes": []}
    assert "data" not in status_of(job(), core(data={**data, "elastic": False}), [], NOW)
