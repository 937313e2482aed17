"""Outrider in some namespaces: rights there suffice, it sees nothing else, and a missing one delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.master.core.k8s.values.names import CONTROL_PLANE, Document
from outrider.master.core.k8s.values.requests import Request
from outrider.master.kubernetes import settings
from outrider.master.kubernetes.api import scope
from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.api.scope import ScopedWatch
from outrider.runtime.settings import Environment, WrongSetting
from tests.cluster.requests_made import recorded
from tests.integration.kubernetes.api_server import ApiServer, api_server
from tests.unit.manifests.test_manifests import BASE

OVERLAY = Path(__file__).resolve().parents[4] / "manifests" / "overlays" / "namespaced"
KUSTOMIZATION = yaml.safe_load((OVERLAY / "kustomization.yaml").read_text())
BINDINGS = list(yaml.safe_load_all((OVERLAY / "bindings.yaml").read_text()))
DELETED = {
    (patch["kind"], patch["metadata"]["name"])
    for each in KUSTOMIZATION["patches"]
    if isinstance(patch := yaml.safe_load(each["patch"]), dict) and patch.get("$patch") == "delete"
}
OBJECTS = [each for each in BASE if (each["kind"], each["metadata"]["name"]) not in DELETED] + BINDINGS
WITHOUT_NAMESPACE = {
    "nodes", "namespaces", "tokenreviews", "subjectaccessreviews", "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
}  # fmt: skip


def rights(account: str, *namespaces: str) -> set[Request]:
    """Cluster-wide, and in these namespaces."""
    found: set[Request] = set()
    for each in OBJECTS:
        subjects = [(one["kind"], one["name"]) for one in each.get("subjects", ())]
        is_there = each["kind"] == "ClusterRoleBinding" or each["metadata"].get("namespace") in namespaces
        if ("ServiceAccount", account) in subjects and is_there:
            found |= set(_granted(each["roleRef"]))
    return found


def _granted(reference: Document) -> Any:
    for role in OBJECTS:
        if (role["kind"], role["metadata"]["name"]) == (reference["kind"], reference["name"]):
            for rule in role["rules"]:
                for group in rule["apiGroups"]:
                    yield from (Request(v, group, r) for r in rule["resources"] for v in rule["verbs"])


@pytest.mark.parametrize("account", ["outrider-master", "outrider-webhook"])
def test_what_stays_cluster_wide_has_no_namespace(account: str) -> None:
    assert {request.resource for request in rights(account)} <= WITHOUT_NAMESPACE
    assert rights(account), "and it is not nothing"


def test_every_request_that_was_made_is_allowed_in_a_listed_namespace() -> None:
    told = next(yaml.safe_load(each["patch"])[0]["value"] for each in KUSTOMIZATION["patches"] if "target" in each)
    assert told["name"] == "OUTRIDER_NAMESPACES"
    for namespace in told["value"].split(","):
        assert recorded() - rights("outrider-master", namespace, "outrider-system") == set()


def test_a_setting_that_cannot_be_meant_stops_the_start() -> None:
    told = {"POD_NAMESPACE": "outrider-system", "POD_NAME": "m", "OUTRIDER_IMAGE": "i"}
    read = settings.read(Environment({**told, "OUTRIDER_NAMESPACES": "team-a, team-b,team-a"}))
    assert read.namespaces == ("team-a", "team-b")
    for wrong in ("team_a", "kube-system", "a/b"):
        with pytest.raises(WrongSetting, match="OUTRIDER_NAMESPACES"):
            settings.read(Environment({**told, "OUTRIDER_NAMESPACES": wrong}))


def test_a_user_is_warned_in_a_namespace_that_is_not_watched() -> None:
    assert scope.unwatched("team-a", ("team-a",)) == scope.unwatched("team-a") == []
    warning = (
        "Outrider does not watch the namespace team-c and does nothing here; "
        "watched namespaces: team-a, team-b (OUTRIDER_NAMESPACES)"
    )
    assert scope.unwatched("team-c", ("team-a", "team-b")) == [warning]


def test_only_what_is_listed_is_in_scope() -> None:
    assert [scope.is_in_scope(name) for name in ("team-a", *CONTROL_PLANE)] == [True, False, False, False]
    assert [scope.is_in_scope(name, ("team-a",)) for name in ("team-a", "team-b", "kube-system")] == [
        True,
        False,
        False,
    ]


class Seen:
    def __init__(self) -> None:
        self.lists: list[set[str]] = []
        self.changes: list[tuple[str, str]] = []

    def listed(self, documents: list[Document]) -> None:
        self.lists.append({each["metadata"]["name"] for each in documents})

    def changed(self, kind: str, document: Document) -> None:
        self.changes.append((kind, document["metadata"]["name"]))


@asynccontextmanager
async def watching(server: ApiServer, api: Api, *namespaces: str) -> AsyncIterator[Seen]:
    seen = Seen()
    watch = ScopedWatch(api, namespaces, "/api/v1", "pods", seen.listed, seen.changed, look_every=0.05)
    task = asyncio.ensure_future(watch.run())
    try:
        await server.until(lambda: seen.lists)
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def put(server: ApiServer, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    server.put(path, {"metadata": {"namespace": namespace, "name": name}})
    return path


async def test_nothing_of_the_control_plane_is_seen() -> None:
    async with api_server() as (server, api):
        for namespace in ("team-a", *CONTROL_PLANE):
            put(server, namespace, f"first-{namespace}")
        async with watching(server, api) as seen:
            assert seen.lists == [{"first-team-a"}]
            put(server, "kube-system", "second")
            put(server, "team-b", "third")
            await server.until(lambda: seen.changes)
            assert seen.changes == [("ADDED", "third")]


async def test_listed_namespaces_are_watched_by_themselves_and_reported_as_one_list() -> None:
    async with api_server() as (server, api):
        first = put(server, "team-a", "one")
        put(server, "team-b", "two")
        put(server, "team-c", "theirs")
        async with watching(server, api, "team-a", "team-b") as seen:
            assert seen.lists == [{"one", "two"}], "and not before both are known"
            server.remove(first)
            put(server, "team-b", "three")
            await server.until(lambda: len(seen.changes) == 2)
            assert sorted(seen.changes) == [("ADDED", "three"), ("DELETED", "one")]
        assert {asked.path for asked in server.asked if asked.path.endswith("/pods")} == {
            f"/api/v1/namespaces/{namespace}/pods" for namespace in ("team-a", "team-b")
        }, "rights in these suffice"


async def test_a_namespace_that_is_not_there_keeps_no_other_waiting_and_may_come() -> None:
    async with api_server() as (server, api):
        put(server, "team-a", "one")
        server.refuse = lambda asked: (403, "no rights") if "/team-b/" in asked.path else None
        async with watching(server, api, "team-a", "team-b") as seen:
            assert seen.lists == [{"one"}]
            put(server, "team-b", "two")
            server.refuse = lambda _asked: None
            await server.until(lambda: len(seen.lists) > 1)
            assert seen.lists[-1] == {"one", "two"}
