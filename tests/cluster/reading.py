"""Documents of the API server, read over one connection that lasts.

A test asks several times a second what has become of its pods; with a `kubectl get` each that would be a fifth of what
two cores can do.
"""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any

from kubernetes import client, config

Document = dict[str, Any]
DEADLINE = 30.0
GROUPS = {
    "elasticjobs": "apis/outrider.dev/v1alpha1",
    "jobs": "apis/batch/v1",
    "jobsets": "apis/jobset.x-k8s.io/v1alpha2",
    "pytorchjobs": "apis/kubeflow.org/v1",
    "statefulsets": "apis/apps/v1",
}
"""Where a kind is that is not in the core group, and in one version wherever we run."""


@cache
def _api() -> client.ApiClient:
    config.load_kube_config()
    return client.ApiClient()


def _read(path: str, query: list[tuple[str, str]]) -> Document:
    api = _api()
    request = api.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
    for pause in (1.0, 3.0, 0.0):
        try:
            found = api.call_api(*request, _request_timeout=DEADLINE)
            break
        except client.ApiException as error:
            if not pause or (error.status != 429 and 0 < (error.status or 0) < 500):
                raise
            time.sleep(pause)
    body = found.read()
    assert found.status == 200, f"GET {path}: {found.status} {body!r}"
    document: Document = json.loads(body)
    return document


@cache
def policy() -> str:
    """The version of the group policy that this server prefers: v1, before Kubernetes 1.21 v1beta1."""
    return preferred(_read("/apis", []), "policy")


def preferred(apis: Document, group: str) -> str:
    """Of what `/apis` says."""
    found = next(each for each in apis["groups"] if each["name"] == group)
    version: str = found["preferredVersion"]["groupVersion"]
    return version


def _path(plural: str, namespace: str) -> str:
    group = f"apis/{policy()}" if plural == "poddisruptionbudgets" else GROUPS.get(plural, "api/v1")
    return f"/{group}/" + (f"namespaces/{namespace}/" if namespace else "") + plural


def listed(plural: str, namespace: str = "", labels: str = "") -> list[Document]:
    """All of the cluster where no namespace is named."""
    found: list[Document] = _read(_path(plural, namespace), [("labelSelector", labels)] if labels else [])["items"]
    return found


def shown(plural: str, name: str, namespace: str = "") -> Document:
    """Fails where there is none."""
    return _read(f"{_path(plural, namespace)}/{name}", [])
