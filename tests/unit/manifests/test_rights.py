"""What the masters may do is what they do: manifests/base/rbac.yaml beside what the cluster's tests saw asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from outrider.master.core.k8s.values.requests import Request
from tests.cluster.requests_made import METRIC, recorded, requests_in

RIGHTS = Path(__file__).resolve().parents[3] / "manifests" / "base" / "rbac.yaml"
NEVER_SEEN = {
    Request("update", "outrider.dev", "elasticjobs/finalizers"): (
        "no request of ours: the admission plugin OwnerReferencesPermissionEnforcement asks for it, where it is on"
    ),
}
"""Rights that no test can use, and why they are there nevertheless."""


def granted() -> Iterator[Request]:
    """To the masters; what the webhook may do is in test_webhook_service.py."""
    for role in yaml.safe_load_all(RIGHTS.read_text()):
        for rule in role.get("rules") or () if role["metadata"]["name"].startswith("outrider-master") else ():
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from (Request(verb, group, resource) for verb in rule["verbs"])


def test_every_right_was_used_or_says_why_not() -> None:
    assert set(granted()) - recorded() - set(NEVER_SEEN) == set()


def test_every_request_that_was_made_is_allowed() -> None:
    assert recorded() - set(granted()) == set()


@pytest.mark.parametrize("right", NEVER_SEEN, ids=lambda right: " ".join(right))
def test_a_right_that_needs_a_reason_is_granted_and_was_never_used(right: Request) -> None:
    assert right in set(granted())
    assert right not in recorded(), "it is used: its reason is no longer one"


def test_a_scrape_is_read_for_requests_of_resources() -> None:
    text = f"""# TYPE {METRIC} counter
{METRIC}{{verb="watch",group="",resource="pods",code="200"}} 2.0
{METRIC}{{verb="get",group="policy",resource="poddisruptionbudgets",code="403"}} 1.0
{METRIC}{{verb="get",group="",resource="/version",code="200"}} 1.0
"""
    assert requests_in(text) == {Request("watch", "", "pods"), Request("get", "policy", "poddisruptionbudgets")}
