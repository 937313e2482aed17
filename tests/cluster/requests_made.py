"""What the masters ask of the API server while the cluster's tests run, written down beside them in `requests.json`.

A fast test holds manifests/base/rbac.yaml against it: a right that no request used is one too many. The recording only
grows, so that a few tests can be run alone; to begin anew, delete it and run them all on a fresh cluster.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from functools import cache
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from master.core.cluster.requests import Request
from tests.cluster.cluster import SYSTEM, kubectl
from tests.cluster.reading import listed
from tests.cluster.turns import locked
from tests.waiting import DEADLINE

RECORDING = Path(__file__).with_name("requests.json")
METRIC = "outrider_api_requests_total"


def recorded() -> set[Request]:
    return {Request(*each) for each in json.loads(RECORDING.read_text())} if RECORDING.exists() else set()


def collect() -> set[Request]:
    """Of all replicas that answer, since each of them began."""
    found: set[Request] = set()
    for pod in listed("pods", SYSTEM, labels="outrider.dev/part=master"):
        if address := pod["status"].get("podIP"):
            with contextlib.suppress(OSError):  # one that has just begun, or ends, has nothing to tell
                found |= requests_in(scraped(address, token()))
    return found


@cache
def token() -> str:
    """Of an account that may read the metrics (manifests/metrics-reader.yaml)."""
    return kubectl("-n", SYSTEM, "create", "token", "outrider-tests", "--duration=24h").strip()


def scraped(address: str, token: str = "") -> str:
    """A master's /metrics. Pods are reached from here: the tests' machine is their node. HTTPError is an OSError."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(
        urllib.request.Request(f"http://{address}:8080/metrics", headers=headers), timeout=DEADLINE
    ) as answer:
        return str(answer.read().decode())


def requests_in(metrics: str) -> set[Request]:
    samples = (sample for family in text_string_to_metric_families(metrics) for sample in family.samples)
    return {
        Request(*(sample.labels[name] for name in Request._fields))
        for sample in samples
        if sample.name == METRIC and not sample.labels["resource"].startswith("/")
    }


def record() -> None:
    """After each test: one that follows may end a master with all that it has counted."""
    found = collect()
    with locked("requests"):
        lines = ",\n".join(f"  {json.dumps(list(each))}" for each in sorted(found | recorded()))
        RECORDING.write_text(f"[\n{lines}\n]\n")
