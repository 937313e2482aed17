"""The webhook's own pods, applied over an installation whose masters were the webhook too, and that one over them: no
pod that asks for a sidecar is made without one meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.cluster.cluster import SYSTEM, kubectl, manifests, rolled_out, until
from tests.cluster.reading import listed

BEFORE = str(Path(__file__).with_name("before_the_split.yaml"))
POD = {
    "metadata": {"generateName": "asks-", "labels": {"outrider.dev/inject": "true"}},
    "spec": {"containers": [{"name": "trainer", "image": "mine", "command": ["python", "train.py"]}]},
}


class Creator(threading.Thread):
    """Makes pods one after another, as `kubectl create --dry-run=server` does: admitted in full, and not stored."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self._namespace, self._over = namespace, threading.Event()
        self.made = 0
        self.uninjected: list[str] = []
        """When, and how long the API server took for it."""
        self.error: Exception | None = None

    def run(self) -> None:
        api = client.CoreV1Api()
        try:
            while not self._over.is_set():
                began = time.time()
                pod = api.create_namespaced_pod(self._namespace, POD, dry_run="All")
                if "outrider.dev/injected" not in (pod.metadata.annotations or {}):
                    self.uninjected.append(
                        f"{time.strftime('%H:%M:%S', time.gmtime(began))}, {time.time() - began:.2f} s"
                    )
                self.made += 1
        except client.ApiException as error:
            self.error = error

    def end(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def every_pod_injected(namespace: str, but: int = 0) -> Iterator[None]:
    creator = Creator(namespace)
    creator.start()
    try:
        until(lambda: creator.made > 20 or creator.error, "pods to be made")
        yield
        seen = creator.made
        until(lambda: creator.made > seen + 20 or creator.error, "pods to be made")
    finally:
        creator.end()
    assert creator.error is None, str(creator.error)
    assert len(creator.uninjected) <= but, f"of {creator.made}: {creator.uninjected}"
    assert creator.made > 40


def masters_serve_the_webhook() -> bool:
    masters = [pod for pod in listed("pods", SYSTEM) if pod["metadata"]["name"].startswith("outrider-master")]
    return all("outrider.dev/part" not in pod["metadata"]["labels"] for pod in masters)


@pytest.fixture
def today_afterwards() -> Iterator[None]:
    yield
    kubectl("apply", "-k", manifests())
    rolled_out("outrider-webhook", "outrider-master")


@pytest.mark.exhaustive
@pytest.mark.alone
def test_no_pod_is_made_uninjected_while_the_webhook_moves(namespace: str, today_afterwards: None) -> None:
    config.load_kube_config()
    with every_pod_injected(namespace):
        kubectl("apply", "-f", BEFORE)
        rolled_out("outrider-master")
        until(masters_serve_the_webhook, "the masters from before")
        selector = '[{"op": "remove", "path": "/spec/selector/outrider.dev~1part"}]'
        kubectl("-n", SYSTEM, "patch", "service", "outrider-webhook", "--type=json", "-p", selector)
        kubectl("-n", SYSTEM, "delete", "deployment", "outrider-webhook")
        until(lambda: not listed("pods", SYSTEM, "outrider.dev/part=webhook"), "the webhook's pods to go")
    with every_pod_injected(namespace):
        kubectl("apply", "-k", manifests())
        rolled_out("outrider-webhook", "outrider-master")
        until(lambda: not masters_serve_the_webhook(), "the masters of today")
    serving = listed("services", SYSTEM)
    selectors = {each["metadata"]["name"]: each["spec"]["selector"] for each in serving}
    assert selectors["outrider-webhook"]["outrider.dev/part"] == "webhook"
