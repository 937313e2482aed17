"""Faults in the network of a pod: the pod that makes them, and that nothing is asked of a cluster where none can be."""

from __future__ import annotations

from typing import Any

import pytest

from cli.errors import UserError
from cli.pod_network import Network, holder_of
from master.core.cluster.chaos import Fault


def pod(native: bool = False, **spec: Any) -> dict[str, Any]:
    sidecar = {"name": "outrider-sidecar", "image": "s"}
    containers = {"containers": [{"name": "train", "image": "t"}, *([] if native else [sidecar])]}
    init = {"initContainers": [{"name": "outrider-hooks", "image": "h"}, sidecar]} if native else {}
    return {
        "metadata": {"name": "gpt-0", "namespace": "research", "uid": "0f6c1f7e-aaaa"},
        "spec": {"nodeName": "node-1", **containers, **init, **spec},
    }


@pytest.mark.parametrize("native", [False, True], ids=["sidecar", "native-sidecar"])
def test_the_fault_is_held_by_a_pod_on_the_same_node_that_goes_with_the_one_it_breaks(native: bool) -> None:
    holder = holder_of(pod(native, imagePullSecrets=[{"name": "ours"}]), Fault("slow-network", "200", 60.0))
    about, spec = holder["metadata"], holder["spec"]
    assert about["name"] == "outrider-slow-network-0f6c1f7e"
    assert about["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "gpt-0", "uid": "0f6c1f7e-aaaa"}]
    assert (spec["nodeName"], spec["imagePullSecrets"]) == ("node-1", [{"name": "ours"}])
    assert spec["activeDeadlineSeconds"] > 60
    (container,) = spec["containers"]
    assert container["image"] == "s", "the sidecar's, which is on the node"
    assert container["command"][-2:] == ["beside", "slow-network=200:60s"]
    assert {"name": "OUTRIDER_POD_UID", "value": "0f6c1f7e-aaaa"} in container["env"]


def test_the_network_of_a_node_is_left_alone() -> None:
    with pytest.raises(UserError, match="pod research/gpt-0 has its node's own network"):
        Network(None, pod(hostNetwork=True)).start(Fault("cut-network"))
