"""`outrider stacks` and `collectives` of pods of a cluster, by the user's own rights there.

A small program is executed in each pod's sidecar container as `kubectl exec` would, which asks the sidecar; Outrider's
master, which could ask as well, is asked nothing (docs/adr/0016). All pods are asked beside one another: ranks that are
asked one after the other would seem to wait for those that were asked first.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from outrider.cli.errors import UserError
from outrider.cli.kube.api import asked, cluster, executed
from outrider.master.core.k8s.pods.containers import status_of
from outrider.master.core.k8s.values.names import JOB, SIDECAR_CONTAINER, Document

PROGRAM = ("python", "-P", "-E", "-m", "sidecar.ask")
PATIENCE = 15.0
"""Seconds; the program ends by itself after 8."""
AT_ONCE = 32
ENDED = ("Failed", "Succeeded")


def told(what: str, pod: str | None, job: str | None, namespace: str | None) -> dict[str, Any]:
    """What the pod of this name, or every pod of the job that has not ended, answers, by pod. Raises UserError."""
    api, default = cluster()
    namespace = namespace or default
    if pod is not None:
        pods = [_document(api, asked(api.read_namespaced_pod, "get", pod, namespace))]
    else:
        pods = _pods_of(api, str(job), namespace)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        bodies = list(threads.map(lambda each: _body(api, each, what), pods))
    return {"members": {each["metadata"]["name"]: body for each, body in zip(pods, bodies, strict=True)}, "missing": []}


def _pods_of(api: Any, job: str, namespace: str) -> list[Document]:
    label = f"{JOB}={job}"
    listed = asked(api.list_namespaced_pod, "list", "", namespace, label_selector=label)
    pods = [_document(api, each) for each in listed.items]
    living = [each for each in pods if (each.get("status") or {}).get("phase") not in ENDED]
    if not living:
        found = "all pods" if pods else "there is no pod"
        raise UserError(f"{found} with the label {label} in the namespace {namespace}"
                        + (" have ended" if pods else "; -n names another"))  # fmt: skip
    return living


def _document(api: Any, read: Any) -> Document:
    document: Document = api.api_client.sanitize_for_serialization(read)
    return document


def _body(api: Any, pod: Document, what: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    if "running" not in (status_of(pod, SIDECAR_CONTAINER).get("state") or {}):
        return {"error": f"it is {status.get('phase') or 'not started'}, without a running {SIDECAR_CONTAINER}"}
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    own = type(api)()  # a client that is about to execute sends everything that way: one for each thread
    try:
        said, errors, code = executed(own, name, namespace, SIDECAR_CONTAINER, [*PROGRAM, what], PATIENCE)
    except UserError as why:
        return {"error": why.message}
    try:
        return dict(json.loads(said))
    except (ValueError, TypeError):
        last = (errors or said).strip()[-300:] or "it said nothing"
        return {"error": f"the program that asks its sidecar ended with {code}: {last}"}
