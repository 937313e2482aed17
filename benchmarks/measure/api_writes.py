"""What the masters write to the API server, as their /metrics count it; without the Lease, which is renewed anyhow."""

from __future__ import annotations

import json
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from measure.pods import kubectl

SYSTEM, SELECTOR = "outrider-system", "app.kubernetes.io/component=master"
METRIC = "outrider_api_requests_total"
READS = ("get", "list", "watch")


def writes() -> Counter[str]:
    """By resource, of all replicas together since each of them began."""
    found: Counter[str] = Counter()
    for pod in json.loads(kubectl("-n", SYSTEM, "get", "pods", "-l", SELECTOR, "-o", "json"))["items"]:
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
        for family in text_string_to_metric_families(kubectl("get", "--raw", path)):
            for sample in family.samples:
                if sample.name == METRIC and sample.labels["verb"] not in READS:
                    found[sample.labels["resource"]] += int(sample.value)
    del found["leases"]
    return found
