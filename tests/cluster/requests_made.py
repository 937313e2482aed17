"""What the masters ask of the API server while the cluster's tests run, written down beside them in `requests.json`.

A fast test holds manifests/base/rbac.yaml against it: a right that no request used is one too many. The recording only
grows, so that a few tests can be run alone; to begin anew, delete it and run them all on a fresh cluster.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from outrider.master.core.k8s.values.requests import Request
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
        with contextlib.suppress(OSError):  # one that has just begun, or ends, has nothing to tell
            found |= requests_in(scraped(pod["metadata"]["name"], token()))
    return found


@cache
def token() -> str:
    """Of an account that may read the metrics (manifests/metrics-reader.yaml)."""
    return kubectl("-n", SYSTEM, "create", "token", "outrider-tests", "--duration=24h").strip()


def scraped(master: str, token: str = "") -> str:
    """The /metrics of the pod of a master. HTTPError is an OSError, and so is a pod that is not reached."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with forwarded(master, 8080) as address:
        wanted = urllib.request.Request(f"http://{address}/metrics", headers=headers)
        with urllib.request.urlopen(wanted, timeout=DEADLINE) as answer:
            return str(answer.read().decode())


@contextlib.contextmanager
def forwarded(pod: str, port: int) -> Iterator[str]:
    """An address of this machine's that leads to a port of the pod, meanwhile: pods need not be reached from here."""
    command = ("kubectl", "-n", SYSTEM, "port-forward", f"pod/{pod}", f":{port}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as forward:
        try:
            assert forward.stdout is not None
            told = re.match(r"Forwarding from (\S+) ->", forward.stdout.readline())
            if told is None:
                raise ConnectionError(f"{pod} is not reached")
            yield told.group(1)
        finally:
            forward.terminate()


def requests_in(metrics: str) -> set[Request]:
    samples = (sample for family in text_string_to_metric_families(metrics) for sample in family.samples)
    return {
        Request(*(sample.labels[name] for name in Request._fields))
        for sample in samples
        if sample.name == METRIC and not sample.labels["resource"].startswith("/")
    }


def record() -> None:
    """Before a master may end with all that it has counted, and at the end."""
    found = collect()
    with locked("requests"):
        lines = ",\n".join(f"  {json.dumps(list(each))}" for each in sorted(found | recorded()))
        RECORDING.write_text(f"[\n{lines}\n]\n")
