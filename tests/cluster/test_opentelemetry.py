"""The masters of a cluster export a recovery to a collector, by the patch that docs/how-to/opentelemetry.md shows."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import SYSTEM, kubectl, rolled_out, until
from tests.cluster.conftest import Make
from tests.cluster.reading import listed
from tests.collector import Collector

pytest.importorskip("rotel", reason="needs the collector Rotel (its wheels are for x86-64 Linux)")
MASTER = "deployment/outrider-master"


def own_address() -> str:
    """The address of this machine that the nodes reach."""
    addresses = listed("nodes")[0]["status"]["addresses"]
    node = next(each["address"] for each in addresses if each["type"] == "InternalIP")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((node, 9))
        return str(asked.getsockname()[0])


@pytest.fixture
def collector(turn: None, tmp_path: Path) -> Iterator[Collector]:
    found = Collector(tmp_path, own_address())
    try:
        kubectl("-n", SYSTEM, "set", "env", MASTER, f"OTEL_EXPORTER_OTLP_ENDPOINT={found.endpoint}")
        rolled_out("outrider-master")
        yield found
    finally:
        kubectl("-n", SYSTEM, "set", "env", MASTER, "OTEL_EXPORTER_OTLP_ENDPOINT-")
        rolled_out("outrider-master")
        found.close()


@pytest.mark.ends_masters
def test_a_recovery_reaches_the_collector_with_its_stages_pod_and_namespace(collector: Collector, make: Make) -> None:
    job = make()
    restart, _world = job.training(4)
    job.kill(3)
    job.training(4, after=restart)
    job.event("Recovered")
    names = ("recovery", "detect", "stop", "wait", "agree", "start", "new_step")
    until(lambda: all(re.search(rf"Name *: {name}$", collector.text(), re.M) for name in names), collector.text)
    for shown in (f"k8s.namespace.name: Str({job.namespace})", "k8s.pod.name: Str(train-worker-1)",
                  "outrider.kind: Str(WorkerExited)", "EventName: outrider.Recovered"):  # fmt: skip
        until(lambda shown=shown: shown in collector.text(), collector.text)
