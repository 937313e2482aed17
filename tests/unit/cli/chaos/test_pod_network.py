"""Faults in the network of a pod: the pod that injects them, and no requests to a cluster if they are impossible."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import kubernetes
import pytest

from outrider.cli.chaos import pod_network
from outrider.cli.chaos.pod_network import Network, holder_of
from outrider.cli.errors import UserError
from outrider.master.core.k8s.values.chaos import Fault


def pod(native: bool = False, **spec: Any) -> dict[str, Any]:
    sidecar = {"name": "outrider-sidecar", "image": "s"}
    containers = {"containers": [{"name": "train", "image": "t"}, *([] if native else [sidecar])]}
    init = {"initContainers": [{"name": "outrider-hooks", "image": "h"}, sidecar]} if native else {}
    return {
        "metadata": {"name": "gpt-0", "namespace": "research", "uid": "0f6c1f7e-aaaa"},
        "spec": {"nodeName": "node-1", **containers, **init, **spec},
    }


@pytest.mark.parametrize("native", [False, True], ids=["sidecar", "native-sidecar"])
def test_a_pod_on_the_same_node_holds_the_fault_and_is_deleted_with_the_pod_that_has_it(native: bool) -> None:
    holder = holder_of(pod(native, imagePullSecrets=[{"name": "ours"}]), Fault("slow-network", "200", 60.0), "ours:1")
    about, spec = holder["metadata"], holder["spec"]
    assert about["name"] == "outrider-slow-network-0f6c1f7e"
    assert about["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "gpt-0", "uid": "0f6c1f7e-aaaa"}]
    assert (spec["nodeName"], spec["imagePullSecrets"]) == ("node-1", [{"name": "ours"}])
    assert spec["activeDeadlineSeconds"] > 60
    (container,) = spec["containers"]
    assert container["image"] == "ours:1"
    assert container["command"][-2:] == ["beside", "slow-network=200:60s"]
    assert {"name": "OUTRIDER_POD_UID", "value": "0f6c1f7e-aaaa"} in container["env"]


def test_the_network_of_a_node_is_left_alone() -> None:
    with pytest.raises(UserError, match="pod research/gpt-0 uses the network of its node"):
        Network(None, pod(hostNetwork=True)).start(Fault("cut-network"))


@contextmanager
def cluster(image: str | None, *phases: str, waits: str = "") -> Iterator[tuple[Any, list[str]]]:
    """An API server whose master has this image, or without a master; and the paths of all requests to it. Each time
    the pod that cuts a network is read or deleted it is in the next of the phases; after the last it is gone.
    `waits`: why its container has not started."""
    paths: list[str] = []
    left = list(phases)
    state = {"state": {"waiting": {"reason": waits}}, "ready": False, "restartCount": 0}
    containers = [{"name": "fault", "image": "none:1", "imageID": "", **state}] if waits else []
    env = [{"name": "OUTRIDER_IMAGE", "value": image}]
    spec = {"selector": {}, "template": {"spec": {"containers": [{"name": "master", "env": env}]}}}

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            found: dict[str, Any] = {}
            if image is not None and self.path.endswith("/namespaces/outrider-system/deployments/outrider-master"):
                found = {"kind": "Deployment", "spec": spec}
            if left and self.path.endswith("/pods/outrider-cut-network-0f6c1f7e"):
                holder = holder_of(pod(), Fault("cut-network"), "ours:1")
                found = {**holder, "status": {"phase": left.pop(0), "containerStatuses": containers}}
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_POST = do_DELETE = do_GET

        def log_message(self, *_words: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = kubernetes.client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
    try:
        yield kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration)), paths
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("installed", "why"), [("ours:1", "has the image s, but the installed Outrider uses ours:1"), (None, "not found")]
)
def test_no_privileged_pod_has_an_image_that_the_pods_owner_has_chosen(installed: str | None, why: str) -> None:
    with cluster(installed) as (api, paths), pytest.raises(UserError, match=why) as refused:
        Network(api, pod()).start(Fault("cut-network"))
    assert "--image IMAGE" in str(refused.value)
    assert [path for path in paths if "/pods" in path] == []


def test_the_image_that_the_user_gives_or_the_installed_one_is_used() -> None:
    with cluster("s") as (api, paths):
        for image in ("mine:1", None):
            with pytest.raises(UserError):  # this server has no pods to be made
                Network(api, pod()).start(Fault("cut-network"), image)
            assert any("/namespaces/research/pods" in path for path in paths)
            paths.clear()


def test_a_fault_is_undone_when_its_container_has_ended_although_the_kubelet_keeps_the_pod() -> None:
    with cluster("s", "Running", "Running", "Running", "Succeeded", "never read") as (api, paths):
        assert Network(api, pod()).undo(None) == ["cut-network"]
    assert len([path for path in paths if path.endswith("/pods/outrider-cut-network-0f6c1f7e")]) == 4


def test_a_new_fault_waits_until_the_ended_pod_of_the_last_one_is_gone() -> None:
    with cluster("s", "Succeeded", "Succeeded", "Succeeded") as (api, paths), pytest.raises(UserError):
        Network(api, pod()).start(Fault("cut-network"))
    holder = [path.endswith("/pods/outrider-cut-network-0f6c1f7e") for path in paths if "/pods" in path]
    assert holder == [True, True, True, True, False], "it is made after a read that found none"


def test_a_pod_that_does_not_end_is_told_with_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_network, "GONE", 0.0)
    with (
        cluster("s", *["Running"] * 9) as (api, _),
        pytest.raises(UserError, match="is still Running; does node-1 answer"),
    ):
        Network(api, pod()).undo(None)


def test_an_image_that_cannot_be_pulled_is_told_at_once() -> None:
    with cluster("s", *["Pending"] * 9, waits="ErrImagePull") as (api, paths), pytest.raises(UserError) as refused:
        Network(api, pod())._started("outrider-cut-network-0f6c1f7e")
    assert "is Pending: ImagePullBackOff: the image none:1 of fault cannot be pulled" in str(refused.value)
    assert len(paths) < 9
