"""`outrider doctor --cluster` and `outrider top --cluster` by the user's own rights: what is as it should be, what is
wrong in a namespace, and what a user without rights learns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from tests.cluster.cluster import DEADLINE, FOLDERS, Document, kubectl, pod_spec, until
from tests.cluster.conftest import Make

Found = dict[str, list[tuple[str, str]]]
CLOSED: Document = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed"},
    "spec": {"podSelector": {}, "policyTypes": ["Egress"]},
}
JOB: Document = {
    "apiVersion": "outrider.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "train"},
    "spec": {"replicaSpecs": {"worker": {"replicas": 2, "template": {"spec": pod_spec(FOLDERS)}}}},
}


def outrider(*arguments: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-E", "-m", "outrider", *arguments]
    return subprocess.run(command, input=given, env={**os.environ, **variables}, capture_output=True, text=True,
                          timeout=DEADLINE)  # fmt: skip


def doctor(namespace: str, *arguments: str, job: Document | None = None, **variables: str) -> tuple[int, Found]:
    """The exit code, and level and text by check."""
    file = () if job is None else ("-f", "-")
    done = outrider("doctor", "-n", namespace, "--json", *file, *arguments, given=json.dumps(job or ""), **variables)
    assert done.returncode in (0, 1), done.stderr
    found: Found = {}
    for each in json.loads(done.stdout)["findings"]:
        found.setdefault(each["check"], []).append((each["level"], each["text"]))
    return done.returncode, found


def test_an_installation_as_it_should_be_has_no_problem(namespace: str) -> None:
    code, found = doctor(namespace, job=JOB)
    assert code == 0, found
    for check in ("API server", "ElasticJob", "master", "webhook", "injection", "namespace", "your rights",
                  "master's rights", "network", "file", "dry run"):  # fmt: skip
        assert found[check][0][0] == "ok", found
    assert "leader" not in found


def test_what_is_wrong_in_a_namespace_is_found(namespace: str, subtests: pytest.Subtests) -> None:
    kubectl("-n", namespace, "create", "-f", "-", given=json.dumps(CLOSED))
    job = json.loads(json.dumps(JOB))
    worker = job["spec"]["replicaSpecs"]["worker"]
    worker["template"]["spec"]["volumes"] = [{"name": "work", "persistentVolumeClaim": {"claimName": "gone"}}]
    code, found = doctor(namespace, job=job)
    assert code == 1
    with subtests.test("a policy"):
        assert found["network"][0][0] == "problem"
        assert "the master (7070/TCP)" in found["network"][0][1]
    with subtests.test("a claim"):
        assert found["volumes"] == [("problem", f"the PersistentVolumeClaim gone does not exist in {namespace}")]
    with subtests.test("a field"):
        worker["minReplicas"] = 5
        _, found = doctor(namespace, job=job)
        assert any("minReplicas" in text for level, text in found["file"] if level == "problem")
        assert found["dry run"][0][0] == "problem"
        assert "minReplicas" in found["dry run"][0][1]
    with subtests.test("supervision"):
        kubectl("annotate", "namespace", namespace, "outrider.dev/supervise=off")
        _, found = doctor(namespace)
        assert found["namespace"][0][0] == "problem"
    with subtests.test("a namespace that is not there"):
        _, found = doctor("not-there")
        assert found["namespace"] == [("problem", "not-there does not exist")]


@pytest.fixture
def nobody(namespace: str, tmp_path: Path) -> str:
    """A kubeconfig of a service account without any right."""
    config.load_kube_config()
    kubectl("-n", namespace, "create", "serviceaccount", "nobody")
    api = client.CoreV1Api()
    token = api.create_namespaced_service_account_token("nobody", namespace, {"spec": {}}).status.token
    document: dict[str, Any] = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    document["users"] = [{"name": document["users"][0]["name"], "user": {"token": token}}]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_user_without_rights_learns_what_to_ask_for(namespace: str, nobody: str) -> None:
    code, found = doctor(namespace, job=JOB, KUBECONFIG=nobody)
    assert code == 1
    assert found["ElasticJob"] == [("ok", "defined; its fields are not visible to you")]
    assert found["your rights"][0][0] == "problem"
    assert "create elasticjobs.outrider.dev" in found["your rights"][0][1]
    for check in ("master", "webhook", "injection", "namespace", "master's rights", "network", "dry run"):
        assert found[check][0][0] == "warning", found
        assert found[check][0][1].startswith("cannot look: you may not "), found
    shown = outrider("top", "train", "-n", namespace, "--once", KUBECONFIG=nobody)
    assert (shown.returncode, "may not get the ElasticJob" in shown.stderr) == (2, True)


def test_top_shows_the_jobs_of_a_namespace_and_one_of_them(namespace: str, make: Make) -> None:
    job = make(restart_limit=1)
    job.training(4)

    def shown() -> str | None:
        page = outrider("top", "train", "-n", namespace, "--once").stdout
        return page if "train is running" in page and "worker-1" in page and "GenerationRunning" in page else None

    page = until(shown, lambda: outrider("top", "train", "-n", namespace, "--once"))
    assert "index" in page
    listed = outrider("top", "-n", namespace, "--once").stdout
    assert "train" in listed
    job.end_well()
    until(lambda: "train has succeeded" in outrider("top", "train", "-n", namespace, "--once").stdout, job.story)
