"""Method and path as RBAC reads them."""

from __future__ import annotations

import pytest

from outrider.master.core.k8s.values.requests import Request, request_of

NAMESPACED = "/apis/outrider.dev/v1alpha1/namespaces/default/elasticjobs"


@pytest.mark.parametrize(
    ("method", "path", "query", "means"),
    [
        ("GET", "/api/v1/pods", {"labelSelector": "x"}, ("list", "", "pods")),
        ("GET", "/api/v1/pods", {"watch": "1"}, ("watch", "", "pods")),
        ("GET", "/api/v1/namespaces/default/pods/a", {}, ("get", "", "pods")),
        ("POST", "/api/v1/namespaces/default/pods", {}, ("create", "", "pods")),
        ("DELETE", "/api/v1/namespaces/default/pods/a", {}, ("delete", "", "pods")),
        ("DELETE", "/api/v1/namespaces/default/pods", {}, ("deletecollection", "", "pods")),
        ("POST", "/api/v1/namespaces/default/pods/a/eviction", {}, ("create", "", "pods/eviction")),
        ("GET", "/api/v1/namespaces/default", {}, ("get", "", "namespaces")),
        ("GET", "/api/v1/namespaces", {}, ("list", "", "namespaces")),
        ("PUT", f"{NAMESPACED}/a/status", {}, ("update", "outrider.dev", "elasticjobs/status")),
        ("PATCH", f"{NAMESPACED}/a", {}, ("patch", "outrider.dev", "elasticjobs")),
        ("GET", "/apis/outrider.dev/v1alpha1/elasticjobs", {"watch": "1"}, ("watch", "outrider.dev", "elasticjobs")),
        ("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", {},
         ("create", "policy", "poddisruptionbudgets")),
        ("GET", "/version", {}, ("get", "", "/version")),
        ("GET", "/apis/policy", {}, ("get", "", "/apis/policy")),
    ],
)  # fmt: skip
def test_a_request_is_a_verb_and_a_resource(
    method: str, path: str, query: dict[str, str], means: tuple[str, str, str]
) -> None:
    assert request_of(method, path, query) == Request(*means)
