"""What is chosen by what a server offers, played from the discovery documents of an old and of a new Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.master.core.k8s.pods import disruption
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.webhook.injection_policy import NATIVE_SIDECARS_SINCE, version_of
from tests.cluster.reading import GROUPS, preferred

RECORDED = Path(__file__).parents[1] / "core/k8s/data/recorded"
ASKED = Path(__file__).parents[3] / "cluster/requests.json"
INSTALLED = ("outrider.dev", "jobset.x-k8s.io", "kubeflow.org")
"""API groups that exist only in clusters where they were installed."""
OURS = {
    "admissionregistration.k8s.io": "v1",
    "apiextensions.k8s.io": "v1",
    "apps": "v1",
    "authentication.k8s.io": "v1",
    "authorization.k8s.io": "v1",
    "batch": "v1",
    "coordination.k8s.io": "v1",
}
"""Versions that the master and the manifests name, whatever the server prefers."""


def said(version: str, name: str) -> Document:
    found: Document = json.loads((RECORDED / version / "discovery" / f"{name}.json").read_text())
    return found


def group_of(version: str, name: str) -> Document:
    return next(each for each in said(version, "apis")["groups"] if each["name"] == name)


@pytest.mark.parametrize(
    ("version", "is_native", "policy", "tests_policy"),
    [("v1.20", False, "policy/v1beta1", "policy/v1beta1"), ("v1.36", True, "policy/v1", "policy/v1")],
)
def test_sidecars_and_budgets_are_those_that_the_server_has(
    version: str, is_native: bool, policy: str, tests_policy: str
) -> None:
    assert (version_of(said(version, "version")) >= NATIVE_SIDECARS_SINCE) is is_native
    assert disruption.api_version(group_of(version, "policy")) == policy
    assert preferred(said(version, "apis"), "policy") == tests_policy


@pytest.mark.parametrize("version", ["v1.20", "v1.36"])
def test_every_version_that_is_named_without_looking_is_served(version: str) -> None:
    asked = {group for _verb, group, _what in json.loads(ASKED.read_text())} - {"", "policy", *INSTALLED}
    assert asked <= set(OURS)
    of_tests = {path.split("/")[1]: path.split("/")[2] for path in GROUPS.values()}
    for group, wanted in {**OURS, **of_tests}.items():
        if group not in INSTALLED:
            assert wanted in [each["version"] for each in group_of(version, group)["versions"]], group
