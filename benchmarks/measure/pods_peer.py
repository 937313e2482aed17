"""torchrun in a cluster: a StatefulSet of agents with one process each, which is what one would write without us.

In the variant that recovers best (measure/peer.py). The StatefulSet replaces a pod by itself, under the same name, and
its pod 0 hosts the rendezvous, so that the benchmark never hurts that one.
"""

from __future__ import annotations

from measure.pods import SCRIPT, Document, PodJob, pod_spec

PORT = 29400


class TorchrunPods(PodJob):
    launcher, kinds = "torchrun", "statefulsets"
    is_rank = "grep -qz ^RANK= $d/environ && grep -qz ddp_probe $d/cmdline"

    def documents(self, image: str, replicas: int, minimum: int) -> list[Document]:
        labels = {"app": self.name}
        address = f"{self.name}-0.{self.name}"
        command = ["torchrun", f"--nnodes={minimum}:{replicas}", "--nproc-per-node=1", "--rdzv-backend=c10d"]
        command += [f"--rdzv-endpoint={address}:{PORT}", "--rdzv-id=bench", "--max-restarts=10", *SCRIPT]
        spec = pod_spec(self.folder, image, command, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels, "ports": [{"port": PORT}]}
        owner = {
            "serviceName": self.name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        }
        about = {"name": self.name}
        return [
            {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": service},
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": about, "spec": owner},
        ]

    def has_index(self, pod: Document, index: int) -> bool:
        return bool(pod["metadata"]["name"] == f"{self.name}-{index}")
