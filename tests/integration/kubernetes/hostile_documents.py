"""ElasticJobs as an API server may hold them by accident: slips, nulls, huge numbers, foreign versions.

`corpus` gives those of the hostile review by hand, and mutations of every example and of documents that the tests start
from. It is seeded: the same seed is the same corpus. Each has a name of its own in `NAMESPACE`, and
a title that says what was done to it. What a schema would refuse is among them too: a schema that is
older than the master, or was taken off, refuses nothing.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.documents import job, template, worker

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMESPACE = "team-bad"
SEED = 17
MUTATIONS = 24
"""Of each document that they begin with."""
Titled = tuple[str, Document]
Way = tuple[str | int, ...]


def corpus(seed: int = SEED) -> list[Titled]:
    """At least 300, each with a title that says what it is."""
    chance = random.Random(seed)
    found = list(written_by_hand())
    for title, document in beginnings():
        found += mutations(title, document, chance)
    return [(title, _stored(document, number)) for number, (title, document) in enumerate(found)]


def as_json(value: Any) -> bytes:
    """Some are nested deeper than `json` writes by itself."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    try:
        return json.dumps(value).encode()
    finally:
        sys.setrecursionlimit(before)


def _stored(document: Document, number: int) -> Document:
    """As the API server shows it: what it writes into the metadata itself is whole."""
    metadata = document["metadata"] if isinstance(document.get("metadata"), dict) else {}
    own = {
        "name": f"bad-{number}",
        "namespace": NAMESPACE,
        "uid": f"00000000-0000-4000-8000-{number:012}",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {**document, "apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob", "metadata": {**metadata, **own}}


# -- what they begin with -------------------------------------------------------------------------------------------
def beginnings() -> Iterator[Titled]:
    """Every ElasticJob of the examples, and one of each kind that the tests know."""
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and document.get("kind") == "ElasticJob":
                yield str(path.relative_to(EXAMPLES)), document
    metadata = {"labels": {"team": "a"}, "annotations": {"sidecar.istio.io/inject": "false"}}
    rich = {
        "nprocPerNode": 2,
        "spares": 1,
        "maxRestarts": 3,
        "nodeCheck": {"enabled": True, "excludeStragglers": True},
        "saveSignal": "SIGUSR1",
        "metrics": {"logPattern": r"loss=(?P<loss>\S+)"},
        "runPolicy": {"activeDeadlineSeconds": 86400, "ttlSecondsAfterFinished": 60, "cleanPodPolicy": "Running"},
        "scaling": {"policy": "schedule", "schedule": [{"cron": "0 8 * * 1-5", "replicas": 2}], "timeZone": "UTC"},
        "recovery": {
            "silentAfter": "10s",
            "hang": {"step": "10m"},
            "exitCodes": {"permanent": [3], "retryable": [137]},
            "rules": [
                {"exitCodes": [17], "action": "replace"},
                {"logPattern": "CUDA error", "action": "replaceNode", "times": 2, "within": "1h"},
                {"nodeCondition": {"type": "GpuUnhealthy"}, "action": "replace"},
            ],
        },
    }
    role = worker(replicas=2, minReplicas=1, maxReplicas=4, restartLimit=2, maxMemory="8Gi", restartPolicy="OnFailure")
    role["template"] = {**template(restartPolicy="Never", volumes=[{"name": "data", "emptyDir": {}}]),
                        "metadata": metadata}  # fmt: skip
    yield "a job with all fields", job({"worker": role}, **rich)
    theirs = {"Master": worker(replicas=1, restartPolicy="ExitCode"), "Worker": worker(replicas=2)}
    policy = {"minReplicas": 1, "maxReplicas": 4, "nProcPerNode": 2, "rdzvBackend": "c10d"}
    document = job({}, pytorchReplicaSpecs=theirs, elasticPolicy=policy, enableElastic=True)
    del document["spec"]["replicaSpecs"]
    yield "a PyTorchJob's document", document
    adopts = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "train"}
    yield "an adopting job", job({"worker": {"replicas": 2}}, adopts=adopts)
    document = job({"ps": worker(replicas=1), "worker": worker(replicas=1)})
    document["metadata"]["annotations"] = {"outrider.dev/ps-resources": "memory=8Gi@rank-index=0",
                                           "outrider.dev/chaos": "cpu-load=90@rank-index=1"}  # fmt: skip
    yield "a job with annotations", document


# -- by hand --------------------------------------------------------------------------------------------------------
def written_by_hand() -> Iterator[Titled]:
    """What the review found, and what a schema lets through."""
    for value in ([{"sidecar.istio.io/inject": "false"}], "text", 7, [None], True):
        for field in ("annotations", "labels", "finalizers"):
            yield f"template.metadata.{field} = {value!r}", _with_template(metadata={field: value})
    for kind, words in (("kill", "kill "), ("python", "python "), ("an empty line", "\n"), ("a comma", ",")):
        for size in (250_000, 1_400_000):
            command = ["sh", "-c", words * (size // len(words))]
            yield f"{size} bytes of {kind}", _with_template(spec={"containers": [{"name": "t", "command": command}]})
    containers = [{"name": "t", "image": "i", "env": [{"name": f"V{n}", "value": "1"} for n in range(3000)]}]
    yield "3000 variables", _with_template(spec={"containers": containers})
    yield "470000 lists", _with_template(spec={"containers": [{"name": "t"}], "x": [[]] * 470_000})
    for value in ("text", ["a"], 7, None, True):
        yield f"template = {value!r}", job({"worker": {"replicas": 1, "template": value}})
        yield f"template.metadata = {value!r}", _with_template(metadata=value)
        yield f"template.spec = {value!r}", job({"worker": {"replicas": 1, "template": {"spec": value}}})
        yield f"containers = {value!r}", _with_template(spec={"containers": value})
        yield f"containers[0] = {value!r}", _with_template(spec={"containers": [value]})
        yield f"initContainers[0] = {value!r}", _with_pod(initContainers=[value])
        yield f"affinity = {value!r}", _with_pod(affinity=value)
        yield f"nodeAffinity = {value!r}", _with_pod(affinity={"nodeAffinity": value})
        for field in ("env", "envFrom", "command", "args", "resources", "volumeMounts", "securityContext", "ports"):
            yield f"{field} = {value!r}", _with_trainer(**{field: value})
        yield f"env[0] = {value!r}", _with_trainer(env=[value])
        yield f"resources.limits = {value!r}", _with_trainer(resources={"limits": value})
        yield f"spec = {value!r}", {**job(), "spec": value}
        yield f"replicaSpecs = {value!r}", job(value) if value is not None else {**job(), "spec": {}}
    yield from _huge()
    yield from _foreign()
    yield from _patterns()
    for depth in (70, 400, 3000):
        yield f"nested {depth} deep", _with_pod(affinity=_nested(depth))
        yield f"lists nested {depth} deep", _with_trainer(env=_nested_lists(depth))


def _huge() -> Iterator[Titled]:
    for number in (2**31, 2**63 - 1, -(2**63), 1.7976931348623157e308, 1e-300, 0.5, -1):
        for field in ("nprocPerNode", "nodeUnit", "spares", "maxRestarts", "keepFailedPods"):
            yield f"{field} = {number!r}", job(**{field: number})
        yield f"restartLimit = {number!r}", job({"worker": worker(replicas=1, restartLimit=number)})
        yield f"runPolicy of {number!r} s", job(runPolicy={"activeDeadlineSeconds": number})
        yield f"recovery.silentAfter = {number!r}", job(recovery={"silentAfter": number, "replaceAfter": number})
        yield f"maxMemory = {number!r}", job({"worker": worker(replicas=1, maxMemory=number)})
        yield f"memory limit = {number!r}", _with_trainer(resources={"limits": {"memory": number}})
        yield f"grace = {number!r}", _with_pod(terminationGracePeriodSeconds=number)
    yield "memory of 10^99", _with_trainer(resources={"limits": {"memory": "1e99"}})


def _foreign() -> Iterator[Titled]:
    """Owners in versions and of names that lead elsewhere."""
    victim = "apps/v1%2Fnamespaces%2Fvictim%2Fstatefulsets%2Fdb?x="
    versions = (
        victim,
        "apps/v1/namespaces/victim",
        "apps/../../api/v1",
        "apps/",
        "/v1",
        "v1",
        "apps/v1#",
        "apps/v9",
        7,
    )
    for version in versions:
        yield f"adopts of {version!r}", _adopting(apiVersion=version)
    for name in ("../../../api/v1/secrets/s", "a/b", "a%2Fb", "", "x" * 300, "a?b=c", "\r\nHost: x", 7, ["a"]):
        yield f"adopts the name {str(name)[:30]!r}", _adopting(name=name)
    for kind in ("Secret", "statefulset", "StatefulSet/scale", "JobSet", "Pod", "", None):
        yield f"adopts the kind {kind!r}", _adopting(kind=kind)


def _adopting(**fields: object) -> Document:
    adopts = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "train", **fields}
    found = job({"worker": {"replicas": 1}}, adopts=adopts)
    found["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "name": "train", "uid": "not-the-owners"}]
    return found


def _patterns() -> Iterator[Titled]:
    for pattern in ("(a+)+$", "(?P<loss>", "(?P<x>a)", "", ".*", "(" * 90, "a{9999999999}", "[", "\\", "a" * 1001, 7):
        yield f"logPattern {str(pattern)[:20]!r}", job(metrics={"logPattern": pattern})
        rule = {"logPattern": pattern, "action": "replace"}
        yield f"rule for {str(pattern)[:20]!r}", job(recovery={"rules": [rule]})


def _with_template(**template_fields: object) -> Document:
    return job({"worker": {"replicas": 1, "template": {**template(), **template_fields}}})


def _with_pod(**fields: object) -> Document:
    return job({"worker": worker(replicas=1, template=template(**fields))})


def _with_trainer(**fields: object) -> Document:
    return _with_pod(containers=[{"name": "main", "image": "train:1", **fields}])


def _nested(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def _nested_lists(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


# -- mutations ------------------------------------------------------------------------------------------------------
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63 - 1, 1e308, "", " ", "text", "²", "1e9999", "../../x", "a%2Fb?c=d", "é" * 300, "\x00",
    [], {}, [None], [[]], ["text"], [{"name": 7}], {"name": "x"}, {"": ""}, {"a": {"b": [None]}},
)  # fmt: skip


def mutations(title: str, document: Document, chance: random.Random) -> Iterator[Titled]:
    """Each differs from it in one to three places."""
    for _ in range(MUTATIONS):
        changed, said = deepcopy(document), []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            ways = [way for way in _ways(changed) if way[0] in ("spec", "metadata", "status")]
            if ways:
                said.append(chance.choice(CHANGES)(changed, chance.choice(ways), chance))
        yield f"{title}: {'; '.join(said)}", changed


def _ways(value: Any, way: Way = ()) -> Iterator[Way]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        yield (*way, name)
        yield from _ways(inner, (*way, name))


def _holder(document: Document, way: Way) -> Any:
    found: Any = document
    for name in way[:-1]:
        found = found[name]
    return found


def _replaced(document: Document, way: Way, chance: random.Random) -> str:
    value = chance.choice(VALUES)
    _holder(document, way)[way[-1]] = deepcopy(value)
    return f"{_path(way)} = {value!r:.40}"


def _taken_away(document: Document, way: Way, _chance: random.Random) -> str:
    del _holder(document, way)[way[-1]]
    return f"without {_path(way)}"


def _wrapped(document: Document, way: Way, _chance: random.Random) -> str:
    holder = _holder(document, way)
    holder[way[-1]] = [holder[way[-1]]]
    return f"{_path(way)} within a list"


def _renamed(document: Document, way: Way, _chance: random.Random) -> str:
    """A list has no names: its entry comes twice."""
    holder = _holder(document, way)
    if isinstance(holder, list):
        holder.append(deepcopy(holder[int(way[-1])]))
        return f"{_path(way)} twice"
    holder[f"{way[-1]}s"] = holder.pop(way[-1])
    return f"{_path(way)} misspelt"


CHANGES: tuple[Callable[[Document, Way, random.Random], str], ...] = (
    _replaced, _replaced, _replaced, _taken_away, _wrapped, _renamed,
)  # fmt: skip


def _path(way: Way) -> str:
    return ".".join(map(str, way))
