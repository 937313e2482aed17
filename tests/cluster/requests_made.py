"""What the masters ask of the API server while the cluster's tests run, written down beside them in `requests.json`.

A fast test holds manifests/base/rbac.yaml against it: a right that no request used is one too many. The recording only
grows, so that a few tests can be run alone; to begin anew, delete it and run them all on a fresh cluster.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from master.core.cluster.requests import Request
from tests.cluster.cluster import SYSTEM
from tests.cluster.reading import listed

RECORDING = Path(__file__).with_name("requests.json")
METRIC = "outrider_api_requests_total"


def recorded() -> set[Request]:
    return {Request(*each) for each in json.loads(RECORDING.read_text())} if RECORDING.exists() else set()


def collect() -> set[Request]:
    """Of all replicas that answer, since each of them began."""
    found: set[Request] = set()
    selector = "app.kubernetes.io/component=master"
    for pod in listed("pods", SYSTEM, labels=selector):
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
        try:
            done = subprocess.run(["kubectl", "get", "--raw", path], capture_output=True, text=True, timeout=30)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:  # one that has just begun, or ends, has nothing to tell
            found |= requests_in(done.stdout)
    return found


def requests_in(metrics: str) -> set[Request]:
    samples = (sample for family in text_string_to_metric_families(metrics) for sample in family.samples)
    return {
        Request(*(sample.labels[name] for name in Request._fields))
        for sample in samples
        if sample.name == METRIC and not sample.labels["resource"].startswith("/")
    }


def record() -> None:
    """After each test: one that follows may end a master with all that it has counted."""
    lines = ",\n".join(f"  {json.dumps(list(each))}" for each in sorted(collect() | recorded()))
    RECORDING.write_text(f"[\n{lines}\n]\n")
