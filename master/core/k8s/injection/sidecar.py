"""The injected parts of a pod besides the trainer: the init container with the hooks, the sidecar, and two volumes.

They need no privileges and no user id of the user's (docs/adr/0001). They must not change the pod's QoS class, which
decides what the kernel kills and what the kubelet evicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outrider.master.core import quantities
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.values import checkpoint_memory
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import (
    AUDIENCE,
    HOOKS_CONTAINER,
    MASTER_KEY,
    MOUNT,
    RANK_INDEX,
    SIDECAR_CONTAINER,
    SIDECAR_USER,
    TOKEN_MOUNT,
    TOKEN_VOLUME,
    VOLUME,
    Document,
)

HOOKS = f"{MOUNT}/hooks"
CPU, MEMORY = "100m", "96Mi"
"""Resources of the sidecar and of the init container."""
AS_ALL_OTHERS = (
    ("cpu", "limits", "500m"),
    ("ephemeral-storage", "requests", "16Mi"),
    ("ephemeral-storage", "limits", "128Mi"),
)
"""Resources that our containers set only if all of the user's containers do.

A namespace with a quota for a resource refuses pods with a container that does not set it. Our containers write only
their log to disk, of which the kubelet keeps 50 MiB.
"""
VOLUME_SIZE = "16Mi"
"""Size of the volume in the pod's memory: hooks use 1 MB, stacks and logs are ring buffers."""
TOKEN_SECONDS = 3600
"""Validity of the sidecar's token in seconds."""
DEFAULT_GRACE = 30
"""The API server's default of terminationGracePeriodSeconds."""
BEST_EFFORT, BURSTABLE, GUARANTEED = "BestEffort", "Burstable", "Guaranteed"
COUNTED = ("cpu", "memory")
"""Resources that decide the QoS class."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of the injection that hold for all pods of a cluster."""

    image: str
    """Image of the sidecar and the hooks."""
    pull_policy: str
    """imagePullPolicy of the image."""
    endpoint: str
    """Address of the leading master, `tcp://host:port`."""
    public_key: str
    """CURVE public key of the master in Z85."""
    native_sidecar: bool = False
    """Whether the API server supports init containers with restartPolicy Always (1.29)."""
    pull_secret: str = ""
    """Name of the pull Secret in the pod's namespace; empty if none is needed."""
    alone_after: float = 600.0
    """Seconds without a master after which a command that forms its process group by itself starts (docs/adr/0028)."""


# -- containers ---------------------------------------------------------------------------------------------------
def hooks_container(spec: Document, policy: Policy) -> Document:
    return {
        "name": HOOKS_CONTAINER,
        "image": policy.image,
        "imagePullPolicy": policy.pull_policy,
        "command": ["cp", "-r", "/opt/outrider/hooks", f"{MOUNT}/"],
        "securityContext": _security(),
        **resources_of(spec),
        "volumeMounts": [mount()],
    }


def sidecar_container(spec: Document, place: Place, policy: Policy) -> Document:
    return {
        "name": SIDECAR_CONTAINER,
        "image": policy.image,
        "imagePullPolicy": policy.pull_policy,
        **({"restartPolicy": "Always"} if policy.native_sidecar else {}),
        "command": ["outrider-sidecar"],
        "env": list(_variables(spec, place, policy)),
        "securityContext": _security(),
        **resources_of(spec),
        "volumeMounts": [mount(), {"name": TOKEN_VOLUME, "mountPath": TOKEN_MOUNT, "readOnly": True}],
    }


def _variables(spec: Document, place: Place, policy: Policy) -> Iterator[Document]:
    grace = spec.get("terminationGracePeriodSeconds")
    rank_index = field("OUTRIDER_RANK_INDEX", f"metadata.labels['{RANK_INDEX}']")
    yield variable("OUTRIDER_PLATFORM", "kubernetes")
    yield variable("OUTRIDER_LOG", "json")
    yield variable("OUTRIDER_JOB", place.key)
    yield variable("OUTRIDER_MEMBER", place.member) if place.member else field("OUTRIDER_MEMBER", place.member_path)
    yield variable("OUTRIDER_ROLE", place.role)
    if place.alone_after is not None:
        yield variable("OUTRIDER_ALONE_AFTER", f"{place.alone_after:g}")
    yield rank_index if place.rank_index is None else variable("OUTRIDER_RANK_INDEX", place.rank_index)
    yield field("OUTRIDER_POD_UID", "metadata.uid")
    yield field("OUTRIDER_ADDRESS", "status.podIP")
    yield variable("OUTRIDER_DIR", MOUNT)
    if place.nproc is not None:
        yield variable("OUTRIDER_NPROC", place.nproc)
    yield variable("OUTRIDER_GRACE", DEFAULT_GRACE if grace is None else grace)
    if policy.native_sidecar:
        yield variable("OUTRIDER_SIDECAR", "native")
    if spec.get("restartPolicy") == "Never" and not policy.native_sidecar:  # the kubelet would not restart it
        yield variable("OUTRIDER_ENDS_AS", "trainer")
    yield variable("OUTRIDER_MASTER", policy.endpoint)
    yield variable(MASTER_KEY, policy.public_key)
    yield variable("OUTRIDER_TOKEN_FILE", f"{TOKEN_MOUNT}/token")


def variable(name: str, value: object) -> Document:
    return {"name": name, "value": str(value)}


def field(name: str, path: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def mount() -> Document:
    return {"name": VOLUME, "mountPath": MOUNT}


def volumes(place: Place) -> list[Document]:
    size = checkpoint_memory.volume_size(VOLUME_SIZE, place.checkpoint_memory)
    token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    return [
        {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]


def _security() -> Document:
    return {
        "runAsUser": SIDECAR_USER,
        "runAsGroup": SIDECAR_USER,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


# -- QoS ----------------------------------------------------------------------------------------------------------
def resources_of(spec: Document) -> Document:
    """The resources of each of our containers.

    They have a CPU limit only if the QoS class needs one or all of the user's containers have one: a CPU limit delays a
    restarted sidecar by 1 s (docs/adr/0001). Resources of the whole pod decide its class alone, and the requests of its
    containers must fit into them, so ours have none then.
    """
    quality = quality_of(spec)
    if mapping(spec.get("resources")):
        return {}
    requests, limits = {"cpu": CPU, "memory": MEMORY}, {"memory": MEMORY}
    if quality == BEST_EFFORT:
        requests, limits = {}, {}
    if quality == GUARANTEED:
        limits = dict(requests)
    found = {"requests": requests, "limits": limits}
    for name, kind, amount in AS_ALL_OTHERS:
        may_have = name not in COUNTED or quality == BURSTABLE
        if may_have and _all_have(spec, kind, name):
            found[kind][name] = amount
    return {"resources": {kind: amounts for kind, amounts in found.items() if amounts}} if requests or limits else {}


def _all_have(spec: Document, kind: str, name: str) -> bool:
    containers = (*entries(spec.get("initContainers")), *entries(spec.get("containers")))
    return all(name in mapping(mapping(mapping(each).get("resources")).get(kind)) for each in containers)


def quality_of(spec: Document) -> str:
    """The QoS class that the API server will give to the pod."""
    of_pod = mapping(spec.get("resources"))
    if of_pod:
        return _quality(of_pod)
    containers = [*entries(spec.get("initContainers")), *entries(spec.get("containers"))]
    found = {_quality(mapping(mapping(container).get("resources"))) for container in containers}
    return found.pop() if len(found) == 1 else BURSTABLE


def _quality(resources: Document) -> str:
    requests, limits = (
        {name: value for name, value in mapping(resources.get(kind)).items() if name in COUNTED and not _is_zero(value)}
        for kind in ("requests", "limits")
    )
    if not requests and not limits:
        return BEST_EFFORT
    is_whole = all(name in limits and _is_same(requests.get(name, limits[name]), limits[name]) for name in COUNTED)
    return GUARANTEED if is_whole else BURSTABLE


def _is_zero(quantity: Any) -> bool:
    return _thousandths(quantity) == 0


def _is_same(one: Any, other: Any) -> bool:
    return str(one) == str(other) or (_thousandths(one) is not None and _thousandths(one) == _thousandths(other))


def _thousandths(quantity: Any) -> int | None:
    """The amount in thousandths, exactly; `quantities.parsed` would round 100m and 200m of a CPU up to 1."""
    text = str(quantity)
    if text.endswith("m"):
        return quantities.parsed(text[:-1])
    fine = quantities.parsed(f"{text}k")  # a number without a suffix
    whole = quantities.parsed(quantity)
    return fine if fine is not None else None if whole is None else whole * 1000
