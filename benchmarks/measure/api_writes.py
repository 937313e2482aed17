"""What the masters write to the API server, as their /metrics count it; without the Lease, which is renewed anyhow."""

from __future__ import annotations

import json
from collections import Counter
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from measure.metrics_reader import token
from measure.pods import kubectl

SYSTEM, SELECTOR = "outrider-system", "outrider.dev/part=master"
METRIC = "outrider_api_requests_total"
READS = ("get", "list", "watch")


def _metrics(address: str) -> str:
    """Whether pods can be reached from here, as on the machine that is their node."""
    request = Request(f"http://{address}:8080/metrics", headers={"Authorization": f"Bearer {token()}"})
    with urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def writes() -> Counter[str]:
    """By resource, of all replicas together since each of them began."""
    found: Counter[str] = Counter()
    for pod in json.loads(kubectl("-n", SYSTEM, "get", "pods", "-l", SELECTOR, "-o", "json"))["items"]:
        for family in text_string_to_metric_families(_metrics(pod["status"]["podIP"])):
            for sample in family.samples:
                if sample.name == METRIC and sample.labels["verb"] not in READS:
                    found[sample.labels["resource"]] += int(sample.value)
    del found["leases"]
    return found
