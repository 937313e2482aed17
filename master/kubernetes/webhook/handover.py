"""Hands the webhook over from old masters, which served it themselves, to its own pods (docs/adr/0031).

The webhook's Service selects labels that the pods of both have, and a port by its name, which today's masters do not
have. So at first it leads to any pod that serves the webhook. When a pod of the webhook is Ready, a master makes the
Service select those pods alone; only then is that master Ready itself. The Deployment ends no old pod before that, so
an old pod receives no requests any more when it ends. The addition to the selector survives another `kubectl apply`,
also of the old manifests.
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
"""Seconds within which every node's proxy has received a changed selector."""

log = logging.getLogger("webhook")


async def to_its_own_pods(api: Api, namespace: str, pause: Callable[[float], Awaitable[Any]] = asyncio.sleep) -> None:
    """Returns when the Service leads to the webhook's pods alone, or does not exist."""
    while True:
        try:
            if await _is_handed_over(api, namespace):
                return
            if await _is_ready(api, namespace):
                await api.patch(_service(namespace), {"spec": {"selector": PODS}})
                log.info("the Service %s now leads to the pods of the webhook alone", SERVICE)
                await pause(SETTLES)
                return
        except ApiError as error:
            if error.is_absent:
                return
            log.warning("checking or updating the Service %s failed: %s", SERVICE, error)
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
