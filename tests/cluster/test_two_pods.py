"""One job of two pods with two processes each, which lives through what happens to its processes and its pods, and ends
well; and a smaller one whose pods the kubelet would start again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import kubernetes
import pytest
import yaml

from tests.cluster.budgets import allows, evicted
from tests.cluster.chaos import allow, chaos, holders, outrider, said
from tests.cluster.cluster import ClusterJob, Document, until
from tests.cluster.conftest import Make
from tests.cluster.test_memory import EAT, SMALL, memory_of
from tests.local.chapters import live_through
from tests.local.training import members


def test_two_pods(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(maxRestarts=100, recovery={"silentAfter": "60s", "replaceAfter": "60s"}),  # thawed before
        a_crashed_process_changes_no_pod,
        a_pod_that_says_so_is_broken_by_its_users_own_rights,
        without_the_right_to_make_a_privileged_pod_no_network_is_broken,
        a_drain_takes_the_next_member_when_the_replacement_of_the_first_is_there,
        ranks_say_where_they_are_and_which_has_not_come,
        a_hung_rank_is_named_and_all_begin_again_in_place_and_once_more_and_its_pod_is_replaced,
        the_job_succeeds_and_its_pods_with_it_and_goes_when_it_may,
    )


def a_crashed_process_changes_no_pod(job: ClusterJob) -> None:
    restart, _ = job.training(4)
    before = job.uids()
    job.kill(3)
    job.training(4, after=restart)
    job.event("WorkerExited", "Rank 3 on worker-1 was killed by SIGKILL")
    assert job.keeps(before)
    assert all(restarts == 0 for _, restarts in before.values())


def a_pod_that_says_so_is_broken_by_its_users_own_rights(job: ClusterJob) -> None:
    restart, _ = job.training(4)
    pod, before, mark = job.pod("worker-1"), job.uids(), job.mark()

    refused = chaos(job, pod, "kill-process")
    assert refused.returncode == 2
    assert f"pod {job.namespace}/{pod} does not allow faults" in refused.stderr
    job.kubectl(*refused.stderr.partition("kubectl ")[2].split())

    assert f"sent SIGKILL to the worker process of pod {job.namespace}/{pod}" in said(job, pod, "kill-process")
    restart, _ = job.training(4, after=restart)
    job.event("WorkerExited", "on worker-1 was killed by SIGKILL", after=mark)
    assert "sent SIGKILL to the sidecar" in said(job, pod, "kill-sidecar")
    assert "busy for 5 % of the time" in said(job, pod, "cpu-load", "5")
    assert said(job, pod, "undo") == f"pod {job.namespace}/{pod}: cpu-load=5 undone\n"
    assert "sent SIGSTOP to the " in said(job, pod, "freeze-member")
    assert "sent SIGCONT to the " in said(job, pod, "thaw-member")
    job.training(4)
    assert job.keeps(before), "everything so far was borne in place"

    restart = job.now()[0]
    assert "deleted, with a grace period of" in said(job, pod, "kill-member")
    until(lambda: pod not in job.pods(), job.story)
    assert chaos(job, "nobody", "hang").stderr == (
        f"outrider: pod 'nobody' not found in the namespace {job.namespace}; choose another with -n\n"
    )
    job.training(4, after=restart)


def without_the_right_to_make_a_privileged_pod_no_network_is_broken(job: ClusterJob) -> None:
    _, world = job.training(4)
    pod = members(world)[3]
    allow(job, pod)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
    job.create(quota)
    until(lambda: json.loads(job.kubectl("get", "quota", "full", "-o", "json"))["status"].get("hard"), "the quota")
    refused = chaos(job, pod, "cut-network")
    assert f"a privileged pod on {job.pods()[pod]['spec']['nodeName']}" in refused.stderr
    assert "exceeded quota: full" in refused.stderr
    job.kubectl("delete", "quota", "full")

    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setenv("KUBECONFIG", somebody(job))
        refused = chaos(job, pod, "cut-network")
        assert "choose an image with --image IMAGE" in refused.stderr, "he may not read the installed one"
        refused = chaos(job, pod, "cut-network", "--image", "outrider/sidecar:dev")
        assert 'cannot create resource "pods"' in refused.stderr
        assert said(job, pod, "list") == f"no active fault in pod {job.namespace}/{pod}\n"
    assert not holders(job)


RIGHTS = {
    "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
    ]
}


def somebody(job: ClusterJob) -> str:
    """A kubeconfig of one who may look at pods and execute in them."""
    job.kubectl("create", "serviceaccount", "somebody")
    job.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "some"}, **RIGHTS})
    job.kubectl("create", "rolebinding", "some", "--role=some", f"--serviceaccount={job.namespace}:somebody")
    kubernetes.config.load_kube_config()
    api = kubernetes.client.CoreV1Api()
    token = api.create_namespaced_service_account_token("somebody", job.namespace, {"spec": {}}).status.token
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = job.folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def a_drain_takes_the_next_member_when_the_replacement_of_the_first_is_there(job: ClusterJob) -> None:
    restart, world = job.training(4)
    first, second = members(world)[0], members(world)[3]
    assert allows(job, 1)["spec"]["maxUnavailable"] == 1
    assert not evicted(job, first)
    assert "disruption budget" in evicted(job, second)
    restart, world = job.training(4, after=restart)
    there = set(members(world))
    assert first not in there
    assert second in there
    until(lambda: not evicted(job, second), job.story)
    _, world = job.training(4, after=restart)
    assert there & set(members(world)) == there - {second}


def answered(job: ClusterJob, what: str, *whom: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of the ranks by pod."""
    done = outrider(job, what, *whom, "--json")
    assert done.returncode == 0, done.stderr
    return {pod: body["ranks"] for pod, body in json.loads(done.stdout)["members"].items()}


def ranks_say_where_they_are_and_which_has_not_come(job: ClusterJob) -> None:
    """A rank is stopped, and while nobody is to look for hangs it stays so."""
    _, world = job.training(4)
    first, second = members(world)[0], members(world)[3]
    row, ranks = r"^rank (\d) \((\S+), pid \d+\), step ", [("0", first), ("1", first), ("2", second), ("3", second)]

    def stacks_of_all() -> bool:  # a rank without a turn in time has none
        told = outrider(job, "stacks", "--pods-of", job.name).stdout
        return sorted(re.findall(row, told, re.MULTILINE)) == ranks and told.count("train.py") >= 4

    until(stacks_of_all, job.story)

    def collectives_of_all() -> bool:
        rows = answered(job, "collectives", "--pods-of", job.name)
        ops = [(row.get("collective") or {}).get("op", "") for ranks in rows.values() for row in ranks]
        found = {pod: [row["rank"] for row in ranks] for pod, ranks in rows.items()}
        return found == {first: [0, 1], second: [2, 3]} and all(op.startswith("gloo:") for op in ops)

    until(collectives_of_all, job.story)
    assert [row["rank"] for row in answered(job, "stacks", "--pod", second)[second]] == [2, 3]

    job.patch(recovery={"hang": {"enabled": False}})
    until(lambda: job.status().get("observedGeneration") == job.job()["metadata"]["generation"], job.story)
    allow(job, second)
    stopped = job.pid_of(second, "rank 3")
    assert "sent SIGSTOP to the worker process" in said(job, second, "hang")
    missing = re.compile(r"^rank 3 has not entered gloo:\w+ number \d+ of group ", re.MULTILINE)
    told: list[str] = []

    def is_missing() -> bool:
        told.append(outrider(job, "collectives", "--pods-of", job.name).stdout)
        return bool(missing.search(told[-1]))

    until(is_missing, lambda: f"{told[-1]}\n{job.story()}")
    job.execute(second, f"kill -CONT {stopped}")
    job.patch(recovery={"hang": None})
    restart, world = job.now()
    assert job.training(4, more=len(world[3]) + 20)[0] == restart

    nobody = outrider(job, "stacks", "--pods-of", "digits-of-nobody")
    assert nobody.returncode == 2
    assert "no pods with the label outrider.dev/job=digits-of-nobody" in " ".join(nobody.stderr.split())
    job.kubectl("exec", first, "-c", "outrider-sidecar", "--", "rm", "/outrider/ask.sock")
    told = outrider(job, "stacks", "--pods-of", job.name).stderr
    assert f"{first} did not answer: the sidecar could not be reached: No such file or directory" in told


def a_hung_rank_is_named_and_all_begin_again_in_place_and_once_more_and_its_pod_is_replaced(job: ClusterJob) -> None:
    restart, world = job.training(4)
    first, pod, before = members(world)[0], members(world)[3], job.uids()
    member, node = job.member(pod), job.pods()[pod]["spec"]["nodeName"]
    culprit = f"rank 3 on {member} (node {node}) is stopped (SIGSTOP, or a debugger); "
    allow(job, pod)

    assert "sent SIGSTOP to the worker process" in said(job, pod, "hang")
    told: str = job.event("HangDetected", culprit)["message"]
    assert re.search(r"; [123] other ranks? waits? in gloo:\w+ number \d+ \(train\.py:\d+ main\)\.$", told), told
    restart, _ = job.training(4, after=restart)
    assert job.keeps(before), "it was borne in place"

    assert "sent SIGSTOP to the worker process" in said(job, pod, "hang")
    job.event("HangDetected", culprit, f"{member} caused a hang before, so it is replaced")
    _, new = job.training(4, after=restart)
    assert members(new)[:2] == [first] * 2
    assert pod not in members(new)
    until(lambda: job.pods()[pod]["status"]["phase"] == "Failed", job.story)
    assert job.uids()[first] == before[first]


def the_job_succeeds_and_its_pods_with_it_and_goes_when_it_may(job: ClusterJob) -> None:
    _, world = job.training(4)
    job.end_well()
    status = job.phase("Succeeded")
    assert status["exitCode"] == 0
    until(lambda: {job.pods()[pod]["status"]["phase"] for pod in members(world)} == {"Succeeded"}, job.story)
    until(lambda: job.status()["replicaStatuses"]["worker"]["succeeded"] == 2, job.story)
    job.patch(runPolicy={"ttlSecondsAfterFinished": 1})
    until(lambda: not job.job() and not job.pods(), job.story)


def test_one_pod_that_the_kubelet_would_start_again(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(replicas=1, container={"resources": SMALL}, pod={"restartPolicy": "OnFailure"}),
        a_pod_that_claims_to_be_another_ones_member_is_refused,
        a_job_of_one_member_never_holds_a_drain,
        it_is_replaced_after_it_was_out_of_memory_too,
    )


def a_pod_that_claims_to_be_another_ones_member_is_refused(job: ClusterJob) -> None:
    """Its token is bound to its own pod, whatever its labels and its environment say."""
    restart, world = job.training(2)
    job.create(impostor(job.pods()[job.pod("worker-0")]))
    phase = ("get", "pod", "impostor", "-o", "jsonpath={.status.phase}")
    until(lambda: job.kubectl(*phase) == "Running", job.story)
    until(lambda: "is not bound to the pod with uid" in job.kubectl("logs", "impostor"), job.story)
    same, _ = job.training(2, more=len(world[0]) + 30)
    assert same == restart
    job.delete_pod("impostor")


def impostor(victim: Document) -> Document:
    containers = [*victim["spec"]["containers"], *victim["spec"]["initContainers"]]
    sidecar = next(c for c in containers if c["name"] == "outrider-sidecar")
    claims = {"OUTRIDER_POD_UID": victim["metadata"]["uid"], "OUTRIDER_MEMBER": "worker-0"}
    env = [{"name": e["name"], "value": claims[e["name"]]} if e["name"] in claims else e for e in sidecar["env"]]
    own = {field: value for field, value in sidecar.items() if field not in ("volumeMounts", "restartPolicy")}
    mounts = [each for each in sidecar["volumeMounts"] if "outrider" in each["mountPath"]]
    volumes = [each for each in victim["spec"]["volumes"] if each["name"].startswith("outrider")]
    labels = {"outrider.dev/role": "worker", "outrider.dev/rank-index": "0"}
    spec = {"restartPolicy": "Never", "containers": [{**own, "env": env, "volumeMounts": mounts}], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "impostor", "labels": labels}, "spec": spec}


def a_job_of_one_member_never_holds_a_drain(job: ClusterJob) -> None:
    restart, world = job.training(2)
    allows(job, 1)
    assert not evicted(job, members(world)[0])
    job.training(2, after=restart)


def it_is_replaced_after_it_was_out_of_memory_too(job: ClusterJob) -> None:
    restart, world = job.training(2)
    old = members(world)[0]
    job.order(0, EAT)
    _, world = job.training(2, after=restart)
    assert memory_of(job.pods()[members(world)[0]]) == ("700Mi", "1400Mi")
    until(lambda: old not in job.pods(), job.story)
