"""Documents of the API server, read over one connection that lasts.

A test asks often what has become of its pods; with a `kubectl get` each that would be a fifth of what two cores can do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from kubernetes import client, config
from urllib3 import Retry

from tests.waiting import DEADLINE

Document = dict[str, Any]
RETRIES = Retry(total=5, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504))
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
    settings = client.Configuration()
    config.load_kube_config(client_configuration=settings)
    settings.retries = RETRIES
    return client.ApiClient(settings)


def _read(path: str, query: list[tuple[str, str]]) -> Document:
    api = _api()
    request = api.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
    found = api.call_api(*request, _request_timeout=DEADLINE)
    body = found.read()
    assert found.status == 200, f"GET {path}: {found.status} {body!r}"
    document: Document = json.loads(body)
    return document


def streamed(path: str, query: list[tuple[str, str]]) -> Iterator[bytes]:
    """What the API server goes on to say, in pieces as they come."""
    api = _api()
    request = api.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
    found = api.call_api(*request, _request_timeout=(DEADLINE, None)).response
    if found.status == 200:
        yield from found.stream(amt=None)


@cache
def policy() -> str:
    """The version of the group policy that this server prefers: v1, before Kubernetes 1.21 v1beta1."""
    return preferred(_read("/apis", []), "policy")


def preferred(apis: Document, group: str) -> str:
    """Of what `/apis` says."""
    found = next(each for each in apis["groups"] if each["name"] == group)
    version: str = found["preferredVersion"]["groupVersion"]
    return version


def path_of(plural: str, namespace: str) -> str:
    """Where the documents of a kind are; in the whole cluster where no namespace is named."""
    group = f"apis/{policy()}" if plural == "poddisruptionbudgets" else GROUPS.get(plural, "api/v1")
    return f"/{group}/" + (f"namespaces/{namespace}/" if namespace else "") + plural


def listed(plural: str, namespace: str = "", labels: str = "") -> list[Document]:
    """All of the cluster where no namespace is named."""
    found: list[Document] = _read(path_of(plural, namespace), [("labelSelector", labels)] if labels else [])["items"]
    return found


def shown(plural: str, name: str, namespace: str = "") -> Document:
    """Fails where there is none."""
    return _read(f"{path_of(plural, namespace)}/{name}", [])
