"""The webhook's Service leads to the webhook's own pods, not before one of them is Ready and before a master is."""

from __future__ import annotations

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.webhook import handover
from tests.integration.kubernetes.document_server import having

PODS = "/api/v1/namespaces/outrider-system/pods"
SERVICE = "/api/v1/namespaces/outrider-system/services/outrider-webhook"
BEFORE = {"app.kubernetes.io/name": "outrider", "app.kubernetes.io/component": "master"}


def pod(name: str, part: str, ready: str) -> Document:
    return {
        "metadata": {"name": name, "labels": {"outrider.dev/part": part}},
        "status": {"conditions": [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": ready}]},
    }


async def test_the_service_is_handed_over_when_a_pod_of_the_webhook_is_ready() -> None:
    documents = {
        SERVICE: {"metadata": {"name": "outrider-webhook"}, "spec": {"selector": dict(BEFORE)}},
        f"{PODS}/outrider-master-2": pod("outrider-master-2", "master", "True"),
        f"{PODS}/outrider-webhook-1": pod("outrider-webhook-1", "webhook", "False"),
    }
    pauses = list[float]()
    async with having(documents) as (server, api):

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            selector = server.documents[SERVICE]["spec"]["selector"]
            if len(pauses) < 3:
                assert selector == BEFORE, "masters from before are still asked"
            if len(pauses) == 2:
                server.documents[f"{PODS}/outrider-webhook-1"] = pod("outrider-webhook-1", "webhook", "True")
            if len(pauses) == 3:
                assert selector == {**BEFORE, "outrider.dev/part": "webhook"}

        await handover.to_its_own_pods(api, "outrider-system", pause)
        assert pauses == [handover.LOOK_EVERY] * 2 + [handover.SETTLES], "and each proxy hears of it"
        server.asked.clear()
        await handover.to_its_own_pods(api, "outrider-system", pause)
        assert server.asked == [("GET", SERVICE)]


async def test_a_pod_of_the_webhook_that_goes_is_no_reason() -> None:
    leaving = pod("outrider-webhook-1", "webhook", "True")
    leaving["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    documents = {SERVICE: {"spec": {"selector": dict(BEFORE)}}, f"{PODS}/outrider-webhook-1": leaving}
    async with having(documents) as (server, api):

        async def pause(seconds: float) -> None:
            leaving["metadata"].pop("deletionTimestamp", None)
            server.documents[f"{PODS}/outrider-webhook-1"] = leaving
            pauses.append(seconds)

        pauses = list[float]()
        await handover.to_its_own_pods(api, "outrider-system", pause)
        assert pauses[0] == handover.LOOK_EVERY


async def test_without_a_webhook_service_no_master_waits_for_it() -> None:
    async with having({}) as (_server, api):
        await handover.to_its_own_pods(api, "outrider-system")
