"""`outrider doctor` and `outrider top` with an API server, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from outrider.cli.main import main
from outrider.master.core.k8s.values.names import Document
from tests.integration.kubernetes.document_server import DocumentServer
from tests.unit.cli.doctor.test_cluster import JOB, Cluster
from tests.waiting import DEADLINE

PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "Endpoints": "/api/v1/namespaces/{}/endpoints",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
}
VERSION = {"gitVersion": "v1.30.0"}
JOBS = "/apis/outrider.dev/v1alpha1/namespaces/team-a/elasticjobs"
REVIEWS = ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
           "/apis/authorization.k8s.io/v1/namespaces/team-a/localsubjectaccessreviews")  # fmt: skip
STATUS = {"phase": "Running", "generation": "1.1", "step": 7,
          "members": [{"id": "worker-0", "rankIndex": 0, "state": "running", "node": "n1"}]}  # fmt: skip
EVENT = {"metadata": {"name": "e"}, "involvedObject": {}, "reason": "GenerationRunning", "type": "Normal",
         "message": "Generation 1.1 runs.", "lastTimestamp": "2026-11-21T03:00:00Z"}  # fmt: skip


def installed() -> dict[str, Document]:
    """The paths and documents of a cluster with Outrider and one job."""
    objects = Cluster().objects
    documents = {f"{PLURALS[kind].format(namespace)}/{name}": each for (kind, namespace, name), each in objects.items()}
    policies = "/apis/networking.k8s.io/v1/namespaces/team-a/networkpolicies"
    job = {**JOB, "status": STATUS}
    more = {"/version/": VERSION, "/apis/outrider.dev/v1alpha1": {"resources": []}, policies: {"items": []},
            f"{JOBS}/digits": job, JOBS: {"items": [job]},
            "/api/v1/namespaces/team-a/events": {"items": [EVENT]}}  # fmt: skip
    return {**documents, **more}


Said = tuple[int, str, str]
"""A command's exit code, and both its streams."""


def process(arguments: tuple[str, ...], kubeconfig: str) -> Said:
    command = [sys.executable, "-P", "-E", "-m", "outrider", *arguments]
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    return done.returncode, done.stdout, done.stderr


def thread(arguments: tuple[str, ...], kubeconfig: str) -> Said:
    done = CliRunner().invoke(main, arguments, env={"KUBECONFIG": kubeconfig})
    return done.exit_code, done.stdout, done.stderr


async def against(
    server: Any, folder: Path, *arguments: str, run: Callable[[tuple[str, ...], str], Said] = thread
) -> Said:
    """What a command says whose kubeconfig names this server."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        context = {"cluster": "c", "user": "u", "namespace": "team-a"}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "u", "user": {}}],
                  "clusters": [{"name": "c", "cluster": {"server": address}}],
                  "contexts": [{"name": "x", "context": context}]}  # fmt: skip
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))
        return await asyncio.to_thread(run, arguments, str(folder / "kubeconfig"))
    finally:
        await runner.cleanup()


def doctor(server: Any, folder: Path, *arguments: str) -> tuple[int, list[tuple[str, str, str]]]:
    code, out, errors = asyncio.run(against(server, folder, "doctor", "--cluster", "--json", *arguments))
    assert not errors, errors
    return code, [(each["check"], each["level"], each["text"]) for each in json.loads(out)["findings"]]


def test_a_cluster_as_it_should_be(tmp_path: Path) -> None:
    documents = DocumentServer(installed())
    documents.reviews = dict.fromkeys(REVIEWS, lambda spec: {"allowed": True})
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    code, found = doctor(documents.handle, tmp_path, "-f", str(tmp_path / "job.yaml"))
    assert [each for each in found if each[1] != "ok"] == []
    assert code == 0
    assert any("Kubernetes v1.30.0 at http" in text for _, _, text in found)
    assert any("exists already" in text for _, _, text in found)


def test_a_cluster_without_outrider(tmp_path: Path) -> None:
    documents = DocumentServer({"/version/": VERSION})
    documents.reviews = dict.fromkeys(REVIEWS, lambda spec: {"allowed": False})
    code, found = doctor(documents.handle, tmp_path)
    assert code == 1
    assert {check for check, level, _ in found if level == "problem"} >= {
        "ElasticJob", "master", "leader", "webhook", "injection", "namespace", "your rights", "master's rights"
    }  # fmt: skip


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_server_that_refuses_everything_causes_findings_and_no_traceback(tmp_path: Path, status: int) -> None:
    documents = DocumentServer({"/version/": VERSION})

    async def refuse(request: web.Request) -> web.Response:
        if request.path == "/version/":
            return await documents.handle(request)
        return web.json_response({"message": "\x1b[31mno"}, status=status)

    _, found = doctor(refuse, tmp_path)
    assert all(text.startswith("cannot look: ") for check, _, text in found if check != "API server"), found
    assert len(found) > 8


@pytest.mark.parametrize("body", ["[]", "3", "null", '{"spec": [], "status": 3, "metadata": 4, "items": 5}', "no JSON"])
def test_documents_of_any_shape_cause_findings_and_no_traceback(tmp_path: Path, body: str) -> None:
    async def anything(request: web.Request) -> web.Response:
        return web.Response(text=body, content_type="application/json", status=201 if request.method == "POST" else 200)

    _, found = doctor(anything, tmp_path)
    assert found


def test_top_shows_the_elasticjobs_of_a_namespace(tmp_path: Path) -> None:
    documents = DocumentServer(installed())
    code, out, errors = asyncio.run(against(documents.handle, tmp_path, "top", "--cluster", "--once", run=process))
    assert (code, "digits" in out, "running" in out) == (0, True, True), errors
    code, out, errors = asyncio.run(against(documents.handle, tmp_path, "top", "digits", "--cluster", "--once"))
    assert (code, "digits is running, generation 1.1, step 7" in out) == (0, True), errors
    assert "worker-0" in out
    assert "GenerationRunning: Generation 1.1 runs." in out
    code, out, errors = asyncio.run(against(documents.handle, tmp_path, "top", "other", "--cluster", "--once"))
    assert (code, "ElasticJob 'other' not found" in errors) == (2, True)
