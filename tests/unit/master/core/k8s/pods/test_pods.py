"""The core's events about a member's pod."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core import text
from outrider.master.core.events import PodSeen
from outrider.master.core.k8s.pods import containers, observe
from outrider.master.core.k8s.values import identity
from outrider.master.core.k8s.values.names import Document
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role
from tests.unit.master.core.k8s.documents import SEEN, recorded

STANDINGS: list[tuple[str, str, str, int | None]] = [
    ("not_looked_at_yet", "pending", "", None),
    ("creating", "pending", "", None),
    ("unschedulable", "pending", "0/2 nodes are available: 2 Insufficient lab/slot", None),
    ("image_never", "pending",
     'ErrImageNeverPull in main: Container image "docker.io/lab/none:1" is not present with ...', None),
    ("image_pull", "pending",
     "ImagePullBackOff: the image docker.io/lab/none:1 of main cannot be pulled: rpc error: code = Unknown ...", None),
    ("image_pull_back_off", "pending",
     "ImagePullBackOff: the image docker.io/lab/none:1 of main cannot be pulled", None),
    ("image_name", "pending", "InvalidImageName in main: Failed to apply default image tag ...", None),
    ("config_error", "pending", 'CreateContainerConfigError in main: configmap "none" not found', None),
    ("init_loop", "pending", "the container outrider-hooks ended with exit code 7 (time 5)", None),
    ("init_failed", "failed", "the init container outrider-hooks ended", 7),
    ("running", "running", "", None),
    ("trainer_just_failed_on_failure", "running",
     "RestartedTrainer: its container ended with exit code 1 (time 2)", None),
    ("trainer_crash_loop", "running", "RestartedTrainer: its container ended with exit code 1 (time 2)", None),
    ("trainer_crash_loop_at_last", "failed", "the trainer's container ended (time 5)", 1),
    ("bad_command_on_failure", "running",
     "RestartedTrainer: its container ended with exit code 128 (StartError): failed to create containerd task: ...",
     None),
    ("bad_command", "failed", "the trainer's container ended (StartError): failed to create containerd task: ...", 128),
    ("trainer_always", "running", "RestartedTrainer: its container ended with exit code 0 (time 5)", None),
    ("trainer_done", "succeeded", "the trainer's container ended", 0),
    ("trainer_done_on_failure", "succeeded", "the trainer's container ended", 0),
    ("trainer_done_sidecar_failed", "succeeded", "the trainer's container ended", 0),
    ("all_done", "succeeded", "the trainer's container ended", 0),
    ("trainer_failed", "failed", "the trainer's container ended", 3),
    ("all_failed", "failed", "the trainer's container ended", 4),
    ("out_of_memory", "failed", "the trainer's container ended (OOMKilled)", 137),
    ("out_of_memory_loop", "failed", "the trainer's container ended (OOMKilled) (time 5)", 137),
    ("sidecar_down", "running",
     "RestartedSidecar: its container ended with exit code 9 (the first time)", None),
    ("sidecar_loop", "running", "RestartedSidecar: its container ended with exit code 1 (time 5)", None),
    ("sidecar_back", "running", "", None),
    ("sidecar_ended", "running",
     "SidecarExited: its container ended with exit code 1 and is not restarted", None),
    ("evicted_for_its_volume", "failed", 'Evicted: Usage of EmptyDir volume "v" exceeds the limit "1Mi"', None),
    ("deadline", "failed",
     "DeadlineExceeded: Pod was active on the node longer than the specified deadline", None),
    ("out_of_cpu", "failed", "OutOfcpu: Pod Node didn't have enough resource: ...", None),
    ("terminating", "terminating", "it was deleted with a grace period of 60 s", None),
    ("terminating_trainer_ended", "terminating", "it was deleted with a grace period of 60 s", 143),
]  # fmt: skip


def standing(pod: Document) -> tuple[str, str, int | None]:
    found = observe.seen(pod)
    assert found is not None
    return found.phase, found.reason, found.exit_code


@pytest.mark.parametrize(("name", "phase", "reason", "code"), STANDINGS, ids=[entry[0] for entry in STANDINGS])
def test_a_recorded_pod_is_seen_as_what_it_is(name: str, phase: str, reason: str, code: int | None) -> None:
    found = standing(recorded(name))
    beginning, is_cut, _nothing = reason.partition("...")
    assert found == (phase, found[1] if is_cut else reason, code)
    assert found[1].startswith(beginning)


LAUNCH = "/outrider/hooks/outrider-launch"


@pytest.mark.parametrize(
    ("message", "is_named"),
    [
        (f"exec {LAUNCH}: no such file or directory", True),
        (f"failed to start container: exec {LAUNCH}: no such file or directory: unknown.", True),
        (f'exec: "{LAUNCH}": stat {LAUNCH}: no such file or directory: unknown', False),
        (f"exec {LAUNCH}: permission denied", False),
        ("exec /bin/none: no such file or directory", False),
    ],
)
@pytest.mark.parametrize("name", ["bad_command", "bad_command_on_failure"])
def test_an_image_without_a_shell_is_named_as_such(name: str, message: str, is_named: bool) -> None:
    pod = recorded(name)
    (trainer,) = (each for each in pod["status"]["containerStatuses"] if each["name"] == "main")
    (trainer["state"].get("terminated") or trainer["lastState"]["terminated"])["message"] = message
    _phase, reason, _code = standing(pod)
    assert ("the image has no /bin/sh, which outrider-launch needs: use an image with a shell" in reason) is is_named
    assert (message.rstrip(".") in reason) is not is_named


def test_every_recorded_pod_is_in_the_table() -> None:
    assert {path.stem for path in SEEN.glob("*.json")} == {name for name, *_ in STANDINGS}


def test_the_core_learns_the_pods_member_and_node() -> None:
    pod = recorded("running")
    assert observe.seen(pod) == PodSeen(
        MemberId("worker-0"), PodUid(pod["metadata"]["uid"]), Role("worker"), RankIndex(0), "running", node="node-1"
    )
    assert identity.job_of(pod) == "research/mnist"


def test_an_out_of_memory_kill_is_reported_with_the_limit() -> None:
    seen = {path.stem: observe.seen(recorded(path.stem)) for path in SEEN.glob("*.json")}
    found = {name: pod.memory_limit for name, pod in seen.items() if pod is not None and pod.out_of_memory}
    assert found == {"out_of_memory": 20 * 2**20, "out_of_memory_loop": 20 * 2**20}


def test_one_that_was_started_again_before_anybody_looked_has_been_out_of_memory_too() -> None:
    pod = recorded("out_of_memory_loop")
    trainer = next(each for each in pod["status"]["containerStatuses"] if each["name"] == "main")
    assert "waiting" in trainer["state"]
    trainer["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    seen = observe.seen(pod)
    assert seen is not None
    assert (seen.phase, seen.out_of_memory) == ("running", True)


def test_a_failed_pod_lingers_while_something_in_it_runs_or_will_again() -> None:
    seen = {path.stem: observe.seen(recorded(path.stem)) for path in SEEN.glob("*.json")}
    lingering = {name for name, pod in seen.items() if pod is not None and pod.lingers}
    assert {"trainer_failed", "trainer_crash_loop_at_last", "out_of_memory"} <= lingering
    assert not lingering & {"all_failed", "init_failed", "deadline", "running", "trainer_done"}


def test_only_a_pod_for_which_there_is_no_room_is_unschedulable() -> None:
    seen = {path.stem: observe.seen(recorded(path.stem)) for path in SEEN.glob("*.json")}
    assert [name for name, pod in sorted(seen.items()) if pod is not None and pod.unschedulable] == ["unschedulable"]


def test_a_pod_that_is_held_back_by_a_scheduling_gate_is_not_waited_for() -> None:
    pod = recorded("unschedulable")
    pod["status"]["conditions"][0] |= {"reason": "SchedulingGated", "message": ""}
    found = observe.seen(pod)
    assert found is not None
    assert (found.phase, found.reason, found.unschedulable) == ("pending", "SchedulingGated", True)


def test_a_spare_has_no_rank_index_and_another_owners_pod_is_the_member_of_its_own_name() -> None:
    pod = recorded("running")
    for label in ("rank-index", "member", "id", "role"):
        del pod["metadata"]["labels"][f"outrider.dev/{label}"]
    found = observe.seen(pod)
    assert found is not None
    assert (found.member, found.role, found.rank_index) == ("mnist-worker-0", "worker", None)


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_pod_whose_sidecar_was_given_another_masters_key_is_seen_as_such(kind: str) -> None:
    pod = recorded("running")
    sidecar = {"name": "outrider-sidecar", "env": [{"name": "OUTRIDER_MASTER_KEY", "value": "old"}]}
    others = [c for c in pod["spec"]["containers"] if c["name"] != "outrider-sidecar"]
    pod["spec"] |= {"containers": others, "initContainers": []}
    pod["spec"][kind] = [*pod["spec"][kind], sidecar]
    told = {key: found.has_another_key for key in ("new", "old", "") if (found := observe.seen(pod, key)) is not None}
    assert told == {"new": True, "old": False, "": False}
    assert [found.has_another_key for found in observe.listed([pod], "new").pods] == [True]


@pytest.mark.parametrize(
    "entry", [{"valueFrom": {"configMapKeyRef": {"name": "outrider-master"}}}, {"value": ""}, None]
)
def test_a_pod_that_does_not_say_which_key_it_holds_is_taken_for_ours(entry: dict[str, object] | None) -> None:
    pod = recorded("running")
    env = [] if entry is None else [{"name": "OUTRIDER_MASTER_KEY", **entry}]
    pod["spec"]["containers"] = [{"name": "trainer"}, {"name": "outrider-sidecar", "env": env}]
    found = observe.seen(pod, "new")
    assert found is not None
    assert not found.has_another_key


def test_a_pod_of_no_job_is_no_member() -> None:
    pod = recorded("running")
    del pod["metadata"]["labels"]["outrider.dev/job"]
    assert (observe.seen(pod), identity.job_of(pod), identity.member_of(pod)) == (None, None, None)
    assert observe.seen({"metadata": {"name": "x"}}) is None


def test_another_owners_pod_that_crashes_again_and_again_is_left_to_its_owner() -> None:
    pod = recorded("trainer_crash_loop_at_last")
    del pod["metadata"]["labels"]["outrider.dev/member"]
    phase, reason, _ = standing(pod)
    assert phase == "running"
    assert reason.startswith("RestartedTrainer")


def trainer(pod: Document) -> Document:
    return next(status for status in pod["status"]["containerStatuses"] if status["name"] == "main")


def test_a_trainer_that_ran_long_before_it_crashed_once_more_is_started_again() -> None:
    pod = recorded("trainer_crash_loop_at_last")
    trainer(pod)["lastState"]["terminated"]["startedAt"] = "2026-11-21T06:00:00Z"
    assert standing(pod)[0] == "running"


def test_a_trainer_that_is_killed_again_and_again_does_not_crash_by_itself() -> None:
    pod = recorded("trainer_crash_loop_at_last")
    trainer(pod)["lastState"]["terminated"]["exitCode"] = 137
    assert standing(pod)[0] == "running"


def test_between_two_restarts_nothing_seems_to_change() -> None:
    """The kubelet shows each as terminated first and as waiting for the back-off then."""
    first, then = recorded("trainer_just_failed_on_failure"), recorded("trainer_crash_loop")
    assert observe.seen(first) == observe.seen(then)
    failed, waits = standing(recorded("image_pull")), standing(recorded("image_pull_back_off"))
    assert failed[1].startswith(f"{waits[1]}: "), "the back-off says less, and nothing else"
    newer = recorded("image_pull_back_off")
    said = 'Back-off pulling image "docker.io/lab/none:1": ErrImagePull: not found'
    trainer(newer)["state"]["waiting"]["message"] = said
    assert standing(newer)[1] == f"{waits[1]}: {said}"


def test_a_pod_cannot_start_while_a_container_waits_for_what_does_not_come_by_itself() -> None:
    seen = {path.stem: observe.seen(recorded(path.stem)) for path in SEEN.glob("*.json")}
    held = [name for name, pod in sorted(seen.items()) if pod is not None and pod.cannot_start]
    assert held == ["config_error", "image_name", "image_never", "image_pull", "image_pull_back_off"]


def test_a_trainer_that_ended_and_whose_image_is_gone_is_not_being_restarted() -> None:
    pod = recorded("trainer_crash_loop")
    trainer(pod)["state"] = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    found = observe.seen(pod)
    assert found is not None
    assert (found.phase, found.cannot_start, found.reason[:16]) == ("running", True, "ImagePullBackOff")


def test_a_pod_that_is_deleted_says_how_long_it_has() -> None:
    pod = recorded("terminating")
    pod["metadata"] |= {"deletionTimestamp": "2026-11-21T07:33:24Z", "deletionGracePeriodSeconds": 5}
    found = observe.seen(pod)
    assert found is not None
    assert (found.grace, found.ends_at) == (5.0, 1795246404.0)
    running = observe.seen(recorded("running"))
    assert running is not None
    assert (running.grace, running.ends_at) == (None, None)


def test_a_pod_that_is_deleted_has_ended_when_all_of_its_containers_have_and_no_finalizer_holds_it() -> None:
    assert not observe.seen(recorded("terminating")).has_ended  # type: ignore[union-attr]
    pod = recorded("terminating_trainer_ended")
    assert observe.seen(pod).has_ended  # type: ignore[union-attr]
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    assert not observe.seen(pod).has_ended  # type: ignore[union-attr]
    assert not observe.seen(recorded("all_done")).has_ended  # type: ignore[union-attr]


def test_a_pod_without_a_controller_is_known_as_one() -> None:
    pod = recorded("running")
    del pod["metadata"]["labels"]["outrider.dev/member"]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": True}
    made = {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}
    told = [found.has_controller for found in map(observe.seen, (pod, made, recorded("running"))) if found is not None]
    assert told == [False, True, True]


def test_what_is_deleted_and_over_is_gone_and_what_has_its_grace_is_not() -> None:
    deleted = {"deletionTimestamp": "2026-11-21T07:00:00Z", "deletionGracePeriodSeconds": 30, "finalizers": ["x/keep"]}
    ended, trains = recorded("all_failed"), recorded("running")
    assert not observe.is_gone(ended)
    for pod in (ended, trains):
        pod["metadata"] |= deleted
    assert (observe.is_gone(ended), observe.is_gone(trains)) == (True, False)
    assert standing(ended)[1] == "it was deleted with a grace period of 30 s; finalizers keep it: x/keep"
    ended["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    assert standing(ended)[1] == "it was deleted with a grace period of 30 s", "every pod of a Job has that one"
    assert not observe.is_gone(disrupted("EvictionByEvictionAPI")), "it is told to go, and trains"
    assert observe.is_gone(taken(message="The node was low on resource: memory."))


def test_the_remains_of_an_evicted_pod_are_reported_as_gone() -> None:
    evicted, held = taken(message="The node was low on resource: memory."), recorded("all_failed")
    held["metadata"] |= {"deletionTimestamp": "2026-11-21T07:00:00Z", "finalizers": ["x/keep"]}
    found = observe.listed([evicted, held, recorded("running")])
    assert len(found.pods) == 1
    (left,) = found.remains
    assert (left.reason, left.rank_index) == ("Evicted: The node was low on resource: memory", 0)
    seen = observe.seen(evicted)
    assert seen is not None
    assert observe.gone(evicted, seen, is_deleted=False) == left
    assert not observe.gone(evicted, seen, is_deleted=True).remains


def test_a_native_sidecar_is_found_among_the_init_containers() -> None:
    """As Kubernetes from 1.29 on shows it."""
    pod = recorded("sidecar_down")
    sidecar = pod["spec"]["containers"].pop()
    pod["spec"]["initContainers"].append({**sidecar, "restartPolicy": "Always"})
    pod["spec"]["restartPolicy"] = "Never"
    down = next(s for s in pod["status"]["containerStatuses"] if s["name"] == "outrider-sidecar")
    pod["status"]["containerStatuses"].remove(down)
    pod["status"]["initContainerStatuses"].append(down)
    assert standing(pod)[1].startswith("RestartedSidecar: its container ended with exit code 9")


def test_a_pod_without_a_sidecar_says_so() -> None:
    pod = recorded("running")
    pod["spec"]["containers"].pop()
    pod["metadata"]["annotations"] = {}
    pod["status"]["containerStatuses"] = [trainer(pod)]
    assert standing(pod)[1].startswith("NotInjected: ")


def test_the_container_that_the_annotation_names_is_the_trainer() -> None:
    pod = recorded("running")
    pod["spec"]["containers"].insert(0, {"name": "logs", "image": "logs:1"})
    ended = {"name": "logs", "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}
    pod["status"]["containerStatuses"].append(ended)
    pod["spec"]["restartPolicy"] = "Never"
    assert standing(pod)[0] == "failed"
    pod["metadata"]["annotations"]["outrider.dev/container"] = "main"
    assert standing(pod)[0] == "running"


def taken(**status: Any) -> Document:
    pod = recorded("evicted_for_its_volume")
    pod["status"] |= status
    return pod


def disrupted(reason: str, **metadata: Any) -> Document:
    pod = recorded("running")
    pod["metadata"] |= metadata
    pod["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "a pod of higher priority."}
    )
    return pod


@pytest.mark.parametrize(
    ("pod", "is_taken"),
    [
        (taken(), False),
        (taken(message="The node was low on resource: memory. Container main was using 9Gi."), True),
        (taken(reason="NodeShutdown", message="Pod was terminated in response to imminent node shutdown."), True),
        (taken(reason="Preempting", message="Preempted in order to admit critical pod"), True),
        (recorded("deadline"), False),
        (recorded("out_of_cpu"), False),
        (recorded("trainer_failed"), False),
        (disrupted("PreemptionByScheduler"), True),
        (disrupted("SomethingElse"), False),
    ],
)
def test_a_pod_that_lost_its_node_differs_from_one_that_exceeded_a_limit(pod: Document, is_taken: bool) -> None:
    assert observe.is_taken(pod) is is_taken


def test_an_evicted_trainer_has_not_succeeded_whatever_its_exit_code_is() -> None:
    pod = recorded("all_done")
    pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    assert standing(pod) == ("failed", "Evicted: The node was low on resource: memory", 0)


def test_a_pod_of_a_lost_node_still_counts_as_running() -> None:
    """It may train on behind a broken network: its silence is judged, with witnesses."""
    pod = recorded("running")
    message = "Node node-2 which was running pod mnist-worker-0 is unresponsive"
    pod["status"] |= {"reason": "NodeLost", "message": message}
    assert standing(pod) == ("running", f"NodeLost: {message}", None)
    pod["metadata"] |= {"deletionTimestamp": "2026-11-21T07:00:00Z", "deletionGracePeriodSeconds": 30}
    assert standing(pod) == ("terminating", f"it was deleted with a grace period of 30 s: NodeLost: {message}", None)


def test_a_pod_that_must_make_room_says_for_whom() -> None:
    when = {"deletionTimestamp": "2026-11-21T07:00:00Z", "deletionGracePeriodSeconds": 5}
    expected = "it was deleted with a grace period of 5 s: PreemptionByScheduler: a pod of higher priority"
    assert standing(disrupted("PreemptionByScheduler", **when)) == ("terminating", expected, None)


def test_a_pod_whose_sidecar_runs_on_is_not_over() -> None:
    is_over = {
        name: observe.is_over(recorded(name)) for name in ("all_done", "trainer_done", "trainer_crash_loop_at_last")
    }
    assert is_over == {"all_done": True, "trainer_done": False, "trainer_crash_loop_at_last": False}


def test_a_long_message_is_cut_to_one_line() -> None:
    pod = recorded("unschedulable")
    pod["status"]["conditions"][0]["message"] = "no room\n" * 100
    reason = standing(pod)[1]
    assert "\n" not in reason
    assert len(reason) == text.SENTENCE


states = st.one_of(
    st.just({}),
    st.builds(lambda: {"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
    st.builds(lambda r: {"waiting": {"reason": r}}, st.sampled_from(
        ["ContainerCreating", "CrashLoopBackOff", "ImagePullBackOff", "RunContainerError"])),
    st.builds(lambda c, r: {"terminated": {"exitCode": c, "reason": r}}, st.sampled_from([0, 1, 137]),
              st.sampled_from(["Completed", "Error", "OOMKilled", "ContainerStatusUnknown"])),
)  # fmt: skip


@given(
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", None]),
    st.sampled_from(["Never", "OnFailure", "Always", None]),
    st.lists(st.tuples(st.sampled_from(["main", "outrider-sidecar", "outrider-hooks"]), states, states,
                       st.integers(0, 9)), max_size=3),
    st.booleans(),
)  # fmt: skip
def test_every_pod_is_in_one_of_the_five_phases(
    phase: str | None, policy: str | None, statuses: list[tuple[str, Document, Document, int]], is_deleted: bool
) -> None:
    pod = recorded("running")
    pod["spec"]["restartPolicy"] = policy
    pod["status"] = {"phase": phase, "containerStatuses": [
        {"name": name, "state": state, "lastState": last, "restartCount": count}
        for name, state, last, count in statuses
    ]}  # fmt: skip
    if is_deleted:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    before = json.dumps(pod)
    found = observe.seen(pod)
    assert found is not None
    assert found.phase in ("pending", "running", "terminating", "succeeded", "failed")
    assert (found.phase == "terminating") is is_deleted
    assert json.dumps(pod) == before
    if phase in ("Succeeded", "Failed") and not is_deleted:
        assert found.phase in ("succeeded", "failed")
    if found.reason.startswith("Restarted"):
        assert found.phase == "running"


@pytest.mark.parametrize(
    ("name", "end"),
    [("sidecar_ended", "ended with exit code 1"), ("sidecar_down", ""), ("sidecar_loop", ""), ("sidecar_back", ""),
     ("running", ""), ("trainer_done_sidecar_failed", ""), ("terminating", "")],
)  # fmt: skip
def test_a_sidecar_that_the_kubelet_does_not_restart_is_reported(name: str, end: str) -> None:
    seen = observe.seen(recorded(name))
    assert seen is not None
    assert seen.sidecar_ended == end


@pytest.mark.parametrize(
    ("rule", "code", "found"),
    [
        ({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}, 42, True),
        ({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}, 1, False),
        ({"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [1]}}, 42, True),
        ({"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [42]}}, 42, False),
        ({"action": "Other", "exitCodes": {"operator": "In", "values": [42]}}, 42, False),
        ({"action": "Restart"}, 42, False),
    ],
)
def test_a_containers_own_rules_are_above_its_pods_restart_policy(rule: Document, code: int, found: bool) -> None:
    container = {"name": "main", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    assert containers.is_restarted(pod, "main", code) is found
