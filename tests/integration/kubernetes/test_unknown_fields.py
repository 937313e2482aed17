"""A mistake in a pod template is reported by the API server's warnings when a pod is created."""

from __future__ import annotations

from pathlib import Path

from outrider.master.core.k8s.values.names import Document
from tests.integration.kubernetes.api_server import ApiServer, api_server
from tests.integration.kubernetes.served_fleet import GOOD, healthy, member, served
from tests.unit.master.core.k8s.documents import worker

COMAND = "spec.replicaSpecs.worker.template.spec.containers[0].comand"


def mistaken() -> Document:
    found = healthy()
    found["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["comand"] = ["sleep", "1000"]
    return found


def strict(document: Document) -> list[str]:
    """As a Kubernetes from 1.25 on."""
    containers = enumerate((document.get("spec") or {}).get("containers") or ())
    return [f'unknown field "spec.containers[{n}].comand"' for n, each in containers if "comand" in each]


def valid(server: ApiServer, path: str) -> Document:
    conditions = (server.documents[path].get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Valid"), {})


def told(server: ApiServer) -> list[str]:
    return [each["message"] for each in server.all("/events/") if each["reason"] == "UnknownTemplateField"]


async def test_a_misspelt_field_of_a_template_is_reported_once_by_its_path_and_the_job_runs(tmp_path: Path) -> None:
    async with api_server() as (server, api):
        server.warns = strict
        path = server.put_job(mistaken())
        async with served(server, api, tmp_path) as master:
            with member(master) as good:
                await good.greet()
                await good.trains()
            await server.until(lambda: valid(server, path), lambda: server.documents[path].get("status"))
            await server.until(lambda: told(server))
        server.remove(GOOD)
        async with served(server, api, tmp_path) as master:
            await server.until(lambda: server.all("/pods/good-worker-"), lambda: server.documents[path]["status"])
            assert (valid(server, path)["status"], valid(server, path)["reason"]) == ("True", "UnknownTemplateField")
            assert valid(server, path)["message"].startswith(f"{COMAND}: unknown field")
            server.edit(path, spec={"replicaSpecs": {"worker": worker(replicas=1)}})
            await server.until(lambda: valid(server, path)["message"] == "", lambda: valid(server, path))
            master.assert_lives()
        (message,) = told(server)
        assert message.startswith(COMAND)


async def test_a_server_without_field_warnings_works_too_and_nothing_is_reported(tmp_path: Path) -> None:
    async with api_server() as (server, api):
        path = server.put_job(mistaken())
        async with served(server, api, tmp_path) as master:
            with member(master) as good:
                await good.greet()
                await good.trains()
            master.assert_lives()
        assert valid(server, path) == {}
        assert told(server) == []
