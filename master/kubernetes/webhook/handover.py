"""The webhook goes from masters that have it in their own process to its own pods. All masters had it once
(docs/adr/0031).

The webhook's Service selects labels that both have, and a port by its name, which the masters of today do not have. So
it leads to whoever is there; when a pod of the webhook is Ready, a master makes it select those alone, and only then is
that master Ready itself. A Deployment ends no old pod before, so none of them is asked any more when it ends. What is
added to the selector stays there through another `kubectl apply`, of the manifests from before too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import PART, Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.webhook.certificates import SERVICE

PODS = {PART: "webhook"}
LOOK_EVERY = 1.0
SETTLES = 5.0
"""Seconds in which every node's proxy has heard of another selector."""

log = logging.getLogger("webhook")


async def to_its_own_pods(api: Api, namespace: str, pause: Callable[[float], Awaitable[Any]] = asyncio.sleep) -> None:
    """Returns when the Service leads to the webhook's pods alone, or is not there."""
    while True:
        try:
            if await _is_handed_over(api, namespace):
                return
            if await _is_ready(api, namespace):
                await api.patch(_service(namespace), {"spec": {"selector": PODS}})
                log.info("the Service %s leads to the pods of the webhook alone", SERVICE)
                await pause(SETTLES)
                return
        except ApiError as error:
            if error.is_absent:
                return
            log.warning("the Service %s could not be looked after: %s", SERVICE, error)
        await pause(LOOK_EVERY)


async def _is_handed_over(api: Api, namespace: str) -> bool:
    service = await api.get(_service(namespace))
    return PODS.items() <= mapping(mapping(service.get("spec")).get("selector")).items()


async def _is_ready(api: Api, namespace: str) -> bool:
    label = ",".join(f"{key}={value}" for key, value in PODS.items())
    found = await api.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=label)
    return any(map(_answers, found["items"]))


def _answers(pod: Document) -> bool:
    conditions = entries(mapping(pod.get("status")).get("conditions"))
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def _service(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services/{SERVICE}"
