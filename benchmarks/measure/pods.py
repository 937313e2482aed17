"""A job's pods on a real cluster, as a benchmark hurts and reads them.

The folder with the script, its checkpoint and its traces is on every node (one machine, or a shared volume).
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config

from measure.steps import Step, Trace

PROBE = Path(__file__).parent.parent / "ddp_probe.py"
SCRIPT = ("/bench/ddp_probe.py", "--trace", "/bench/trace", "--checkpoint", "/bench/probe.pt")
RANK_INDEX = "outrider.dev/rank-index"
LOOK = 0.01
BEGAN = "echo $$; date +%s.%N; cat /proc/uptime; cat /proc/[0-9]*/stat"
TICKS = os.sysconf("SC_CLK_TCK")
Document = dict[str, Any]
Found = TypeVar("Found")

KILL = """
for d in /proc/[0-9]*; do
  if {is_rank} 2>/dev/null; then date +%s.%N; kill -9 ${{d#/proc/}}; exit; fi
done
exit 1
"""
IS_OUR_RANK = """case "$(cat $d/comm)" in "rank "*) ;; *) false ;; esac"""


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
    """What `documents` make in a namespace of its own: pods of one process each, the script's folder on all of them."""

    launcher, kinds = "outrider", "elasticjobs"
    is_rank = IS_OUR_RANK
    """In a shell: is the process at /proc/PID, $d, a rank?"""

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
        for document in self.documents(image, replicas, minimum):
            kubectl("-n", self.namespace, "create", "-f", "-", given=json.dumps(document))

    def documents(self, image: str, replicas: int, minimum: int) -> list[Document]:
        return [elasticjob(self.name, self.folder, image, replicas, minimum)]

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
        """The living pod that has this rank index."""
        for pod in self.pods():
            if self.has_index(pod, rank) and "deletionTimestamp" not in pod["metadata"]:
                return str(pod["metadata"]["name"])
        raise RuntimeError(f"no pod has rank index {rank}")

    def has_index(self, pod: Document, index: int) -> bool:
        return bool(pod["metadata"]["labels"].get(RANK_INDEX) == str(index))

    def story(self) -> str:
        return kubectl("-n", self.namespace, "get", f"{self.kinds},pods,events", "-o", "wide")

    def began(self, pod: str) -> float:
        """When the last of its containers did, to 10 ms, where the kubelet tells whole seconds: the first process of a
        container has its parent outside, as this command has too."""
        said = kubectl("-n", self.namespace, "exec", pod, "-c", "trainer", "--", "sh", "-c", BEGAN).splitlines()
        own, now, up = said[0], float(said[1]), float(said[2].split()[0])
        stats = [(line.split()[0], line.rpartition(")")[2].split()) for line in said[3:]]
        starts = [float(fields[19]) for pid, fields in stats if fields[1] == "0" and pid != own]
        return now - up + max(starts) / TICKS

    # -- faults: each returns the moment in which it was done, by the machine's clock ----------------------------------
    def kill_rank(self, rank: int) -> float:
        script = KILL.format(is_rank=self.is_rank)
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
    spec = pod_spec(folder, image, ["python", *SCRIPT])
    worker = {"replicas": replicas, "minReplicas": minimum, "maxReplicas": replicas, "template": {"spec": spec}}
    return {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {"nprocPerNode": 1, "replicaSpecs": {"worker": worker}},
    }


def pod_spec(folder: Path, image: str, command: Sequence[str], **env: str) -> Document:
    """The same for every launcher, but for its command and variables."""
    trainer = {
        "name": "trainer",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": [{"name": key, "value": value} for key, value in {"OMP_NUM_THREADS": "1", **env}.items()],
        "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}},
        "volumeMounts": [{"name": "bench", "mountPath": "/bench"}],
    }
    volume = {"name": "bench", "hostPath": {"path": str(folder), "type": "Directory"}}
    return {"terminationGracePeriodSeconds": 30, "containers": [trainer], "volumes": [volume]}


def kubectl(*arguments: str, given: str | None = None) -> str:
    done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"kubectl {' '.join(arguments[:6])}: {done.stderr.strip()}")
    return done.stdout
