"""Who reads the masters' /metrics on a real cluster."""

from __future__ import annotations

import urllib.error

import pytest

from tests.cluster.cluster import kubectl
from tests.cluster.masters import leader
from tests.cluster.requests_made import scraped, token


def test_the_metrics_are_for_who_may_read_them(namespace: str) -> None:
    master = leader()["metadata"]["name"]
    assert "outrider_leader 1" in scraped(master, token())
    kubectl("-n", namespace, "create", "serviceaccount", "anybody")
    of_anybody = kubectl("-n", namespace, "create", "token", "anybody").strip()
    for shown, status in (("", 401), ("no-token", 401), (of_anybody, 403)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            scraped(master, shown)
        assert refused.value.code == status
        assert "outrider_leader" not in refused.value.read().decode()
