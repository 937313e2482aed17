"""An edit that cannot be run leaves the last valid spec in force, also for the next master."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outrider.master.core.k8s.values.names import Document
from tests.integration.kubernetes.api_server import ApiServer, api_server
from tests.integration.kubernetes.served_fleet import GOOD, healthy, member, served
from tests.unit.master.core.k8s.documents import worker

CANNOT_BE: dict[str, Any] = {
    "a list for a map": {"replicaSpecs": {"worker": worker(replicas=1) | {"template": {"metadata": {"labels": []}}}}},
    "no spec": "text",
    "a size": {"replicaSpecs": {"worker": worker(replicas=-1)}},
    "too deep": {"replicaSpecs": {"worker": worker(replicas=1)}, "x": None},
}
deepest: Any = {}
for _ in range(2000):
    deepest = {"a": deepest}
CANNOT_BE["too deep"]["x"] = deepest


def valid(server: ApiServer, path: str) -> Document:
    conditions = (server.documents[path].get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Valid"), {})


@pytest.mark.parametrize("what", CANNOT_BE)
async def test_an_edit_that_cannot_be_run_changes_nothing_and_a_later_one_does(what: str, tmp_path: Path) -> None:
    async with api_server() as (server, api):
        path = server.put_job(healthy())
        async with served(server, api, tmp_path) as master:
            with member(master) as good:
                await good.greet()
                first = await good.trains()
                server.edit(path, spec=CANNOT_BE[what])
                await server.until(lambda: valid(server, path).get("status") == "False")
                assert valid(server, path)["message"].startswith("spec")
                good.loses_its_rank()
                assert await good.trains() > first
                server.edit(path, spec={"replicaSpecs": {"worker": worker(replicas=2)}})
                await server.until(lambda: server.all("/pods/good-worker-1"), lambda: server.documents[path]["status"])
                await server.until(lambda: valid(server, path).get("status") == "True")
                assert "spec" not in server.documents[path]["status"]["saved"]
            master.assert_lives()


async def test_the_next_master_continues_with_the_last_valid_spec(tmp_path: Path) -> None:
    async with api_server() as (server, api):
        path = server.put_job(healthy())
        async with served(server, api, tmp_path) as master:
            with member(master) as good:
                await good.greet()
                await good.trains()
                server.edit(path, spec={"replicaSpecs": {"worker": worker(replicas=-1)}})
                await server.until(lambda: "spec" in server.documents[path]["status"]["saved"])
        server.remove(GOOD)
        async with served(server, api, tmp_path) as master:
            await server.until(lambda: server.all("/pods/good-worker-"), lambda: server.documents[path]["status"])
            assert valid(server, path)["status"] == "False"
            server.edit(path, spec={"replicaSpecs": {"worker": worker(replicas=2)}})
            await server.until(lambda: len(server.all("/pods/good-worker-")) == 2)
            await server.until(lambda: valid(server, path)["status"] == "True")
            master.assert_lives()
