"""`outrider chaos --pod`, as its user calls it: each pod is asked whether it may be broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import kubernetes
import pytest
import yaml

from tests.cluster.cluster import ClusterJob, until
from tests.cluster.conftest import Make
from tests.local.training import members

OUTRIDER = str(Path(sys.executable).parent / "outrider")


def chaos(job: ClusterJob, pod: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [OUTRIDER, "chaos", *words, "--pod", pod, "-n", job.namespace]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def allowed(job: ClusterJob, member: str) -> str:
    pod = job.pod(member)
    job.kubectl("annotate", "pod", pod, "outrider.dev/chaos=allowed")
    return pod


def said(job: ClusterJob, pod: str, *words: str) -> str:
    done = chaos(job, pod, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pod_that_says_so_is_broken_by_its_users_own_rights(make: Make) -> None:
    job = make()
    restart, _ = job.training(4)
    pod, before = job.pod("worker-1"), job.uids()

    refused = chaos(job, pod, "kill-process")
    assert refused.returncode == 2
    assert f"pod {job.namespace}/{pod} does not say that it may be broken" in refused.stderr
    job.kubectl(*refused.stderr.partition("kubectl ")[2].split())

    assert f"sent SIGKILL to the worker process of pod {job.namespace}/{pod}" in said(job, pod, "kill-process")
    restart, _ = job.training(4, after=restart)
    job.event("WorkerExited", "on worker-1 was killed by SIGKILL")
    assert "sent SIGKILL to the sidecar" in said(job, pod, "kill-sidecar")
    assert "busy for 5 % of the time" in said(job, pod, "cpu-load", "5")
    assert said(job, pod, "undo") == f"pod {job.namespace}/{pod}: cpu-load=5 is undone\n"
    assert "sent SIGSTOP to the " in said(job, pod, "freeze-member")
    assert "sent SIGCONT to the " in said(job, pod, "thaw-member")
    job.training(4)
    assert job.keeps(before), "everything so far was borne in place"

    assert "is deleted" in said(job, pod, "kill-member")
    until(lambda: pod not in job.pods(), job.story)
    assert chaos(job, "nobody", "hang").stderr == (
        f"outrider: there is no pod 'nobody' in the namespace {job.namespace}; -n names another\n"
    )


def holders(job: ClusterJob) -> list[str]:
    """The pods that hold faults, those that are going included."""
    return [name for name in job.kubectl("get", "pods", "-o", "name").split() if "pod/outrider-" in name]


def test_the_network_of_a_pod_is_cut_and_the_pod_comes_back_when_that_is_undone(make: Make) -> None:
    job = make(replicas=3, least=2, recovery={"silentAfter": "5s", "replaceAfter": "300s"})
    restart, _ = job.training(6)
    pod, before = allowed(job, "worker-1"), job.uids()

    told = said(job, pod, "cut-network")
    assert "every packet from and to it is dropped, for 3600 s, or until: outrider chaos undo --pod" in told
    assert "cut-network:3600s: every packet" in said(job, pod, "list")
    assert "cut-network runs there already" in chaos(job, pod, "cut-network").stderr
    _, rest = job.training(4, after=restart)
    assert pod not in members(rest)
    job.event("MemberSilent", "worker-1")

    assert said(job, pod, "undo") == f"pod {job.namespace}/{pod}: cut-network:3600s is undone\n"
    assert not holders(job)
    job.event("MemberIsolated", "worker-1 says: neither the master nor")
    job.event("MemberBack", "worker-1")
    job.training(6)
    assert job.keeps(before)


def test_the_network_of_a_pod_is_slow_as_long_as_the_command_stays(make: Make) -> None:
    job = make(replicas=3)
    job.training(6)
    pod = allowed(job, "worker-2")
    words = (OUTRIDER, "chaos", "slow-network", "200", "--for", "10m", "--pod", pod, "-n", job.namespace)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None
        assert "every round trip of it takes 200 ms more" in slow.stdout.readline()
        job.event("LinkSlow", "worker-2")
        slow.send_signal(signal.SIGTERM)
    assert not holders(job)
    job.event("LinkWell", "worker-2")
    job.training(6)


@pytest.mark.exhaustive
def test_a_fault_ends_with_its_pod_and_with_its_time(make: Make) -> None:
    job = make(replicas=3, least=2, recovery={"silentAfter": "5s", "replaceAfter": "300s"})
    restart, _ = job.training(6)
    pod = allowed(job, "worker-2")
    words = (OUTRIDER, "chaos", "slow-network", "20", "--for", "10m", "--pod", pod, "-n", job.namespace)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None
        slow.stdout.readline()
        job.kubectl("delete", "pod", pod, "--wait=false")
    until(lambda: not holders(job), job.story)
    restart, _ = job.training(6, after=restart)

    pod = allowed(job, "worker-1")
    assert said(job, pod, "slow-network", "20", "--for", "2s").endswith("slow-network=20:2s is over\n")
    assert not holders(job)


RIGHTS = {
    "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
    ]
}


def test_without_the_right_to_make_a_privileged_pod_no_network_is_broken(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make()
    job.training(4)
    pod = allowed(job, "worker-1")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
    job.create(quota)
    until(lambda: json.loads(job.kubectl("get", "quota", "full", "-o", "json"))["status"].get("hard"), "the quota")
    refused = chaos(job, pod, "cut-network")
    assert "by a privileged pod on node-" in refused.stderr
    assert "exceeded quota: full" in refused.stderr

    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("KUBECONFIG", somebody(job, tmp_path))
        refused = chaos(job, pod, "cut-network")
        assert "--image IMAGE names the one to be used" in refused.stderr, "he may not read the installed one"
        refused = chaos(job, pod, "cut-network", "--image", "outrider/sidecar:dev")
        assert 'cannot create resource "pods"' in refused.stderr
        assert said(job, pod, "list") == f"no fault runs in pod {job.namespace}/{pod}\n"
    assert not holders(job)


def somebody(job: ClusterJob, folder: Path) -> str:
    """A kubeconfig of one who may look at pods and execute in them."""
    job.kubectl("create", "serviceaccount", "somebody")
    job.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "some"}, **RIGHTS})
    job.kubectl("create", "rolebinding", "some", "--role=some", f"--serviceaccount={job.namespace}:somebody")
    kubernetes.config.load_kube_config()
    api = kubernetes.client.CoreV1Api()
    token = api.create_namespaced_service_account_token("somebody", job.namespace, {"spec": {}}).status.token
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)
