"""kubectl as a user has it, and one job seen through it and through what its ranks wrote."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config

from tests import waiting
from tests.cluster import watching
from tests.cluster.reading import Document, listed, policy
from tests.local import undisturbed
from tests.local.scripts import calm
from tests.local.training import SCRIPT, Traces, World

SYSTEM = "outrider-system"
FOLDERS = Path("/var/tmp/outrider-cluster-tests")
IMAGE = "outrider/digits:dev"
SLOT = "outrider.test/slot"
DEADLINE = waiting.DEADLINE
"""Seconds for anything: no test here is about durations, and another one runs beside it on the same machine."""
LONG = 2 * DEADLINE
"""For what imports TensorFlow in several pods, or trains to its end."""
TICK = 0.5
"""Seconds after which a wait looks again at what no watch tells, as files and logs."""
Found = TypeVar("Found")

OF_A_POD = calm(SCRIPT.replace('Path(os.environ["OUTRIDER_DIR"]).name', "os.uname().nodename"))
assert "os.uname" in OF_A_POD


def kubectl(*arguments: str, given: str | None = None, seconds: float = DEADLINE) -> str:
    """What it printed; fails where it does."""
    done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def until(claim: Callable[[], Found | None], what: object = "", seconds: float = DEADLINE) -> Found:
    """What the claim gives, once it gives something true: it is asked again when something has changed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = watching.changes()
        if found := claim():
            return found
        watching.wait_for_change(seen, TICK)
    raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")


def manifests() -> str:
    """What is installed on a cluster of this version."""
    version = "manifests" if policy() == "policy/v1" else "manifests-1.20"
    return str(Path(__file__).with_name(version))


def rolled_out(*deployments: str) -> None:
    for each in deployments:
        kubectl(
            "-n", SYSTEM, "rollout", "status", "deployment", each, f"--timeout={DEADLINE:g}s", seconds=DEADLINE + 30
        )


def set_slots(slots: dict[str, int]) -> None:
    """How many units of the extended resource SLOT each node has: pods that ask for more stay pending."""
    config.load_kube_config()
    for node, number in slots.items():
        patch = [{"op": "add", "path": f"/status/capacity/{SLOT.replace('/', '~1')}", "value": str(number)}]
        client.CoreV1Api().patch_node_status(node, patch)


def pod_spec(folder: Path, *command: str, **container: object) -> Document:
    """A user's pod: his image and script, and a volume that outlives it. Nothing of ours is in it."""
    trainer = {
        "name": "trainer",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command or ("python", "/work/train.py", "/work")),
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
        **container,
    }
    volume = {"name": "work", "hostPath": {"path": str(folder), "type": "Directory"}}
    return {"terminationGracePeriodSeconds": 15, "containers": [trainer], "volumes": [volume]}


def apart(selector: dict[str, str]) -> Document:
    """A node for each while there are enough."""
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": "kubernetes.io/hostname"}
    terms = [{"weight": 100, "podAffinityTerm": term}]
    return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


class Pods(Traces):
    """Pods of one job, whoever made them."""

    def __init__(self, namespace: str, name: str, folder: Path, script: str = OF_A_POD) -> None:
        super().__init__(folder)
        self.namespace, self.name = namespace, name
        self.watches = watching.opened(namespace)
        (folder / "train.py").write_text(script)

    def kubectl(self, *arguments: str, **options: Any) -> str:
        return kubectl("-n", self.namespace, *arguments, **options)

    def create(self, document: Document) -> None:
        self.kubectl("create", "-f", "-", given=json.dumps(document))

    def pod(self, member: str) -> str:
        """Of an ElasticJob's own member."""
        return f"{self.name}-{member}"

    def member(self, pod: str) -> str:
        return pod.removeprefix(f"{self.name}-")

    # -- what is claimed ------------------------------------------------------------------------------------------
    def check(self, restart: int, world: World) -> None:
        """Beyond the laws of every world: its losses, to the last, are those of a run to which nothing happened."""
        super().check(restart, world)
        for step in world[0]:
            assert abs(step.loss - undisturbed.loss(step.step)) < undisturbed.SPREAD, step

    def job(self) -> Document:
        """The ElasticJob; empty while there is none."""
        found = listed("elasticjobs", self.namespace)
        return next((job for job in found if job["metadata"]["name"] == self.name), {})

    def status(self) -> Document:
        return dict(self.job().get("status") or {})

    def phase(self, wanted: str) -> Document:
        return until(lambda: self.status() if self.status().get("phase") == wanted else None,
                     lambda: f"phase {wanted}: {self.story()}")  # fmt: skip

    def pods(self) -> dict[str, Document]:
        """By name, those that are not being deleted."""
        found = listed("pods", self.namespace)
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def uids(self) -> dict[str, tuple[str, int]]:
        """The uid of each pod and how often its containers were restarted."""
        return {
            name: (pod["metadata"]["uid"], sum(c["restartCount"] for c in pod["status"].get("containerStatuses", ())))
            for name, pod in self.pods().items()
        }

    def keeps(self, before: dict[str, tuple[str, int]]) -> bool:
        """Nobody was replaced, and no container restarted; a busy machine may have made a doubt, and that a spare."""
        return before.items() <= self.uids().items()

    def events(self) -> list[Document]:
        found = listed("events", self.namespace)
        return [event for event in found if event["source"].get("component") == "outrider"]

    def mark(self) -> frozenset[str]:
        """The Events that there are now."""
        return frozenset(event["metadata"]["name"] for event in self.events())

    def event(self, kind: str, *words: str, after: frozenset[str] = frozenset()) -> Document:
        """An Event of this reason with all these words in its message, which was not there at a mark."""

        def found() -> Document | None:
            new = (event for event in self.events() if event["metadata"]["name"] not in after)
            return next((e for e in new if e["reason"] == kind and all(w in e["message"] for w in words)), None)

        return until(found, lambda: f"Event {kind} {words}: {self.story()}")

    def resized_behind(self, after: frozenset[str] = frozenset()) -> int:
        """The step of the checkpoint behind which the world changed."""
        message = self.event("ResizeStarted", "A checkpoint of step", "is finished: ", after=after)["message"]
        return int(message.split("of step ")[1].split()[0])

    def rendezvous(self, pod: str) -> list[dict[str, str]]:
        """The lines with which the generations began in this pod's sidecar."""
        log = self.kubectl("logs", pod, "-c", "outrider-sidecar")
        lines = (json.loads(line) for line in log.splitlines() if '"GenerationStarted"' in line)
        return [line for line in lines if "group_rank" in line]

    def story(self) -> str:
        events = sorted(self.events(), key=lambda event: event["metadata"]["creationTimestamp"])
        told = "\n".join(f"{e['metadata']['creationTimestamp']} {e['reason']}: {e['message']}" for e in events)
        shown = self.kubectl("get", "elasticjobs,pods", "-o", "wide")
        return f"{shown}\n{told[-4000:]}\n{self.status().get('message')}"

    # -- what is done ---------------------------------------------------------------------------------------------
    def execute(self, pod: str, script: str) -> str:
        return self.kubectl("exec", pod, "-c", "trainer", "--", "sh", "-c", script)

    def pid_of(self, pod: str, title: str) -> int:
        """The process of this short name (`rank 2`, `outrider-tmpl`) as the pod's containers count them."""
        listing = self.execute(pod, 'for d in /proc/[0-9]*; do echo "${d#/proc/} $(cat $d/comm 2>/dev/null)"; done')
        found = re.search(rf"^(\d+) {re.escape(title)}$", listing, re.MULTILINE)
        assert found, listing
        return int(found.group(1))

    def kill(self, rank: int) -> None:
        """The process of this rank in the newest world."""
        pod = self.now()[1][rank][0].member
        self.execute(pod, f"kill -9 {self.pid_of(pod, f'rank {rank}')}")

    def delete_pod(self, pod: str) -> None:
        """Without any grace."""
        self.kubectl("delete", "pod", pod, "--grace-period=0", "--force")

    def end_well(self) -> None:
        """The script comes to its end by itself."""
        (self.folder / "end").touch()


class ClusterJob(Pods):
    """An ElasticJob of workers with two processes each."""

    def __init__(
        self,
        namespace: str,
        name: str,
        folder: Path,
        replicas: int = 2,
        least: int | None = None,
        most: int | None = None,
        restart_limit: int | None = None,
        container: Document | None = None,
        max_memory: str | None = None,
        pod: Document | None = None,
        script: str = OF_A_POD,
        in_their_words: bool = False,
        **spec: object,
    ) -> None:
        """`in_their_words`: as a PyTorchJob, of which one replica is the master."""
        super().__init__(namespace, name, folder, script)
        worker: Document = {
            "replicas": replicas,
            "template": {"spec": {**pod_spec(folder, **(container or {})), **(pod or {})}},
        }
        for field, value in (("minReplicas", least), ("maxReplicas", most), ("restartLimit", restart_limit),
                             ("maxMemory", max_memory)):  # fmt: skip
            if value is not None:
                worker[field] = value
        self.document: Document = {
            "apiVersion": "outrider.dev/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": name},
            "spec": {
                "nprocPerNode": 2,
                "recovery": {"silentAfter": "15s"},
                "replicaSpecs": {"worker": worker},
                **spec,
            },
        }
        if in_their_words:
            del self.document["spec"]["replicaSpecs"]
            worker["replicas"] = replicas - 1
            roles = {"Master": {**worker, "replicas": 1, "restartPolicy": "ExitCode"}, "Worker": worker}
            self.document["spec"]["pytorchReplicaSpecs"] = roles
        self.create(self.document)

    def patch(self, **spec: object) -> None:
        self.kubectl("patch", "elasticjob", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def assert_goes_on(self) -> None:
        """Asked all the time, while files are read; that a watch may be a moment behind does no harm."""
        phase = self.watches["elasticjobs"].documents.get(self.name, {}).get("status", {}).get("phase")
        assert phase not in ("Succeeded", "Failed", "Stopped"), self.story()
