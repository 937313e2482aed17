"""A PS job on the cluster, as its user writes it, and its steps as its pods print them: the example of examples/ps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.cluster.cluster import LONG, Pods, pod_spec, until
from tests.cluster.reading import Document, listed

IMAGE = "outrider/tf:dev"
EATER = """
def eat(file):
    while not os.path.exists(file):
        time.sleep(0.1)
    os.unlink(file)
    return bytearray(4_000_000_000)


__import__("threading").Thread(target=eat, args=["/work/eat-" + os.environ["WORKER_TYPE"]], daemon=True).start()
"""
"""A script that takes all memory that there is when a test says so by a file."""
MAIN = 'if __name__ == "__main__":'
SCRIPT = (Path(__file__).parents[2] / "examples/ps/click.py").read_text().replace(MAIN, EATER + MAIN)
SAVE_EVERY = 50
COMMAND = ["python", "/work/train.py", "--model", "/work/model", "--save-every", str(SAVE_EVERY)]
_LINE = re.compile(r"(?P<time>\S+)Z global_step: (?P<step>\d+) loss: (?P<loss>[\d.]+)")

_TOLD = re.compile(r"(?P<time>\S+)Z (?P<task>\w+ \d+ of {.*)")


@dataclass(frozen=True, slots=True)
class Step:
    time: float
    step: int
    loss: float


class PsClusterJob(Pods):
    """An ElasticJob of ps, workers and a chief with one process each."""

    def __init__(self, namespace: str, name: str, folder: Path, containers: dict[str, Document] | None = None, *,
                 max_workers: int = 2, steps: int = 10**6, pause: float = 0.05, **replicas: int) -> None:  # fmt: skip
        """`containers`: by role, what its trainer's container has of its own."""
        self.asked = [*COMMAND, "--steps", str(steps), "--pause", str(pause)]
        super().__init__(namespace, name, folder, SCRIPT)
        roles: Document = {}
        for role, count in replicas.items():
            spec = pod_spec(folder, *self.asked, **{"image": IMAGE, **(containers or {}).get(role, {})})
            roles[role] = {"replicas": count, "template": {"spec": spec}}
        roles["worker"]["maxReplicas"] = max_workers
        spec = {"recovery": {"silentAfter": "15s"}, "replicaSpecs": roles}
        metadata = {"name": name}
        document = {"apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob", "metadata": metadata, "spec": spec}
        self.create(document)

    def steps(self, member: str, after: float = 0.0) -> list[Step]:
        """What the pod of this member has printed since a moment."""
        log = self.kubectl("logs", self.pod(member), "-c", "trainer", "--timestamps")
        found = (Step(_moment(line["time"]), int(line["step"]), float(line["loss"])) for line in _LINE.finditer(log))
        return [step for step in found if step.time > after]

    def steps_on(self, member: str, after: float = 0.0, count: int = 20) -> list[Step]:
        """Waits until it has made so many steps after a moment."""

        def made() -> list[Step] | None:
            assert self.status().get("phase") not in ("Succeeded", "Failed", "Stopped"), self.story()
            rows = self.steps(member, after) if self.is_started(member) else []
            return rows if len(rows) >= count else None

        return until(made, lambda: f"{count} steps of {member}: {self.story()}", LONG)

    def newest_checkpoint(self) -> int:
        """The step of the newest checkpoint, as TensorFlow's own record of them names it."""
        record = self.folder / "model" / "checkpoint"
        named = re.search(r'^model_checkpoint_path: ".*-(\d+)"', record.read_text() if record.exists() else "")
        return int(named.group(1)) if named else 0

    def checkpoint(self, step: int) -> Path:
        """As TensorFlow's Saver names it."""
        return self.folder / "model" / f"model.ckpt-{step}"

    def is_started(self, member: str) -> bool:
        return self.trainer(member).get("started") is True

    def trainer(self, member: str) -> Document:
        """The status of its trainer's container; empty where there is none yet."""
        statuses = self.pods().get(self.pod(member), {}).get("status", {}).get("containerStatuses", ())
        return next((status for status in statuses if status["name"] == "trainer"), {})

    def labels(self, member: str) -> dict[str, str]:
        labels: dict[str, str] = self.pods()[self.pod(member)]["metadata"]["labels"]
        return {name.partition("/")[2]: value for name, value in labels.items()}

    def command(self, member: str) -> list[str]:
        command: list[str] = self.pods()[self.pod(member)]["spec"]["containers"][0]["command"]
        return command

    def told(self, member: str) -> tuple[float, str]:
        """When its script began, and the first line of it: what TF_CONFIG has told it."""

        def line() -> re.Match[str] | None:
            if not self.is_started(member):
                return None
            log = self.kubectl("logs", self.pod(member), "-c", "trainer", "--timestamps")
            return next(_TOLD.finditer(log), None)

        found = until(line, lambda: f"the script of {member}: {self.story()}", LONG)
        return _moment(found["time"]), found["task"]

    def addresses(self) -> dict[str, list[str]]:
        """By Service, the addresses of the pods behind it."""
        found = {}
        for endpoints in listed("endpoints", self.namespace):
            subsets = endpoints.get("subsets") or ()
            found[endpoints["metadata"]["name"]] = [a["ip"] for s in subsets for a in s.get("addresses") or ()]
        return found


def _moment(text: str) -> float:
    """Nanoseconds are more than Python reads."""
    return datetime.fromisoformat(f"{text[:26]}+00:00").timestamp()
