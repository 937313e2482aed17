"""`outrider stacks` and `collectives` for pods of a cluster, with the user's own rights.

The command executes a small program in each pod's sidecar container, as `kubectl exec` would, which queries the
sidecar. Outrider's master is not involved (docs/adr/0016). All pods are queried at the same time: if they were queried
one after the other, the later ranks would seem to wait for the earlier ones.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from outrider.cli.errors import UserError
from outrider.cli.kube.api import call_api, cluster, executed
from outrider.master.core.k8s.pods.containers import status_of
from outrider.master.core.k8s.values.names import JOB, SIDECAR_CONTAINER, Document

PROGRAM = ("python", "-P", "-E", "-m", "sidecar.ask")
PATIENCE = 15.0
"""Seconds to wait for a pod; the program in it ends by itself after 8."""
AT_ONCE = 32
ENDED = ("Failed", "Succeeded")


def collected(what: str, pod: str | None, job: str | None, namespace: str | None) -> dict[str, Any]:
    """The answers of the named pod, or of all pods of the job that have not ended, by pod. Raises UserError."""
    api, default = cluster()
    namespace = namespace or default
    if pod is not None:
        pods = [_document(api, call_api(api.read_namespaced_pod, "get", pod, namespace))]
    else:
        pods = _pods_of(api, str(job), namespace)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        bodies = list(threads.map(lambda each: _body(api, each, what), pods))
    return {"members": {each["metadata"]["name"]: body for each, body in zip(pods, bodies, strict=True)}, "missing": []}


def _pods_of(api: Any, job: str, namespace: str) -> list[Document]:
    label = f"{JOB}={job}"
    listed = call_api(api.list_namespaced_pod, "list", "", namespace, label_selector=label)
    pods = [_document(api, each) for each in listed.items]
    living = [each for each in pods if (each.get("status") or {}).get("phase") not in ENDED]
    if not living:
        found = "all pods" if pods else "no pods"
        raise UserError(f"{found} with the label {label} in the namespace {namespace}"
                        + (" have ended" if pods else "; choose another with -n"))  # fmt: skip
    return living


def _document(api: Any, read: Any) -> Document:
    document: Document = api.api_client.sanitize_for_serialization(read)
    return document


def _body(api: Any, pod: Document, what: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    if "running" not in (status_of(pod, SIDECAR_CONTAINER).get("state") or {}):
        return {"error": f"the pod is {status.get('phase') or 'not started'}; {SIDECAR_CONTAINER} is not running"}
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    own = type(api)()  # one client per thread: while it executes, it sends all its requests over that connection
    try:
        output, errors, code = executed(own, name, namespace, SIDECAR_CONTAINER, [*PROGRAM, what], PATIENCE)
    except UserError as why:
        return {"error": why.message}
    try:
        return dict(json.loads(output))
    except (ValueError, TypeError):
        last = (errors or output).strip()[-300:] or "no output"
        return {"error": f"the program that queries the sidecar ended with exit code {code}: {last}"}
