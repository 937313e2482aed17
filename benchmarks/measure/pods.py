"""A job's pods on a real cluster, as a benchmark hurts and reads them.

The folder with the script, its checkpoint and its traces is on every node (one machine, or a shared volume).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config

from measure.steps import Step, Trace

PROBE = Path(__file__).parent.parent / "ddp_probe.py"
RANK_INDEX = "outrider.dev/rank-index"
LOOK = 0.01
Document = dict[str, Any]
Found = TypeVar("Found")

KILL = """
for d in /proc/[0-9]*; do
  if [ "$(cat $d/comm 2>/dev/null)" = "rank {rank}" ]; then date +%s.%N; kill -9 ${{d#/proc/}}; exit; fi
done
exit 1
"""


class PodTrace(Trace):
    """Traces of processes that count their pids each in a pod of its own: here each file is one process."""

    def read(self) -> None:
        for path in sorted(self.folder.glob("*.jsonl")):
            process = self._numbers.setdefault(path, len(self._numbers) + 1)
            for line in self._new_lines(path):
                step = dataclasses.replace(Step(**json.loads(line)), pid=process)
                self.by_pid.setdefault(process, []).append(step)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._numbers: dict[Path, int] = {}


class PodJob:
    """An ElasticJob of `replicas` pods with one process each, in a namespace of its own."""

    def __init__(self, name: str, folder: Path, image: str, replicas: int, minimum: int) -> None:
        self.name, self.namespace, self.folder = "bench", name, folder
        (folder / "trace").mkdir(parents=True)
        for path in (folder, folder / "trace"):
            path.chmod(0o777)
        shutil.copy(PROBE, folder)
        self.trace = PodTrace(folder / "trace")
        config.load_kube_config()
        self.core = client.CoreV1Api()
        kubectl("create", "namespace", self.namespace)
        document = elasticjob(self.name, folder, image, replicas, minimum)
        kubectl("-n", self.namespace, "create", "-f", "-", given=json.dumps(document))

    # -- reading ------------------------------------------------------------------------------------------------------
    def wait(self, condition: Callable[[], Found | None], limit: float) -> Found | None:
        """What the condition gives once it gives something; None after so many seconds."""
        deadline = time.time() + limit
        while time.time() < deadline:
            self.trace.read()
            if found := condition():
                return found
            time.sleep(LOOK)
        return None

    def pods(self) -> list[Document]:
        found: list[Document] = json.loads(kubectl("-n", self.namespace, "get", "pods", "-o", "json"))["items"]
        return found

    def pod_of(self, rank: int) -> str:
        for pod in self.pods():
            if pod["metadata"]["labels"].get(RANK_INDEX) == str(rank) and "deletionTimestamp" not in pod["metadata"]:
                return str(pod["metadata"]["name"])
        raise RuntimeError(f"no pod has rank index {rank}")

    def story(self) -> str:
        return kubectl("-n", self.namespace, "get", "elasticjobs,pods,events", "-o", "wide")

    # -- faults: each returns the moment in which it was done, by the machine's clock ----------------------------------
    def kill_rank(self, rank: int) -> float:
        script = KILL.format(rank=rank)
        said = kubectl("-n", self.namespace, "exec", self.pod_of(rank), "-c", "trainer", "--", "sh", "-c", script)
        return float(said)

    def delete(self, pod: str) -> float:
        """At once, without grace: as a node does that is taken away."""
        moment = time.time()
        self.core.delete_namespaced_pod(pod, self.namespace, grace_period_seconds=0)
        return moment

    def evict(self, pod: str) -> float:
        version = "policy/v1" if "policy/v1\n" in kubectl("api-versions") else "policy/v1beta1"
        body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": pod, "namespace": self.namespace}}
        moment = time.time()
        self.core.create_namespaced_pod_eviction(pod, self.namespace, body)
        return moment

    def close(self) -> None:
        kubectl("delete", "namespace", self.namespace, "--wait=false")
        kubectl("-n", self.namespace, "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        self.wait(lambda: not self.pods(), 90)


def elasticjob(name: str, folder: Path, image: str, replicas: int, minimum: int) -> Document:
    trainer = {
        "name": "trainer",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "/bench/ddp_probe.py", "--trace", "/bench/trace", "--checkpoint", "/bench/probe.pt"],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}},
        "volumeMounts": [{"name": "bench", "mountPath": "/bench"}],
    }
    volume = {"name": "bench", "hostPath": {"path": str(folder), "type": "Directory"}}
    spec = {"terminationGracePeriodSeconds": 30, "containers": [trainer], "volumes": [volume]}
    worker = {"replicas": replicas, "minReplicas": minimum, "maxReplicas": replicas, "template": {"spec": spec}}
    return {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {"nprocPerNode": 1, "replicaSpecs": {"worker": worker}},
    }


def kubectl(*arguments: str, given: str | None = None) -> str:
    done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"kubectl {' '.join(arguments[:6])}: {done.stderr.strip()}")
    return done.stdout
