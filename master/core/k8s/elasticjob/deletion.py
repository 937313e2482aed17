"""Deleted jobs: which pods still belong to one, for how long, and whether the job ends at all.

Kubernetes deletes the ElasticJob first and its pods after it, each with its grace period; for a job of another
controller it deletes the pods and the ElasticJob in any order. Meanwhile the user may apply a job of the same name,
whose pods have the same label, so owner references and creation times must distinguish the two.

If the master ends meanwhile, its successor finds only the pods. It derives the job from them (`left_by`), and their
sidecars report what runs in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from outrider.master.core.k8s.elasticjob import adopted as elasticjob_adopted
from outrider.master.core.k8s.owners.references import controller_of
from outrider.master.core.k8s.pods.observe import is_over
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import GROUP_VERSION, KIND, SAVE_SIGNAL, Document
from outrider.wire.ids import JobName

DEFAULT_GRACE = 30.0
"""Grace period of a pod in seconds if its spec has none."""
FOREGROUND = "foregroundDeletion"
"""Finalizer that keeps an object until the objects it owns are deleted."""


def is_deleted(job: Document) -> bool:
    """Whether the job was deleted and only a finalizer keeps it."""
    return bool(job["metadata"].get("deletionTimestamp"))


def is_its(pod: Document, job: Document) -> bool:
    """Whether the pod belongs to this job and not to another ElasticJob of the same name."""
    controller = mapping(controller_of(pod["metadata"]))
    return controller.get("kind") != KIND or controller.get("uid") == job["metadata"]["uid"]


def why_it_ends(job: Document, owner: Document | None) -> str:
    """Why the job ends; empty if it continues and its pods stay.

    `owner`: the present document of the owner of adopted pods; empty if it does not exist, None if it cannot be read.
    """
    adopts = mapping(job["spec"].get("adopts"))
    if not adopts:
        return "its ElasticJob was deleted"
    if owner is None or (_is_the_owner(owner, job) and not owner["metadata"].get("deletionTimestamp")):
        return ""
    return f"{adopts['kind']} {adopts['name']} was deleted"


def still_its(pods: Iterable[Document], job: Document, owner: Document | None) -> list[Document]:
    """The pods of this job, without those of a newer owner of the same name."""
    made = "" if not owner or _is_the_owner(owner, job) else str(owner["metadata"].get("creationTimestamp") or "")
    return [pod for pod in pods if is_its(pod, job) and not (made and _made(pod) >= made)]


def _made(pod: Document) -> str:
    """The pod's creation time in RFC 3339, UTC, in seconds: sorts by time."""
    return str(pod["metadata"].get("creationTimestamp") or "")


def _is_the_owner(owner: Document, job: Document) -> bool:
    uids = {mapping(each).get("uid") for each in entries(job["metadata"].get("ownerReferences"))}
    return bool(owner) and (not uids or owner["metadata"].get("uid") in uids)


def seconds_left(pods: Sequence[Document], now: float) -> float:
    """The shortest remaining grace period of the running pods in seconds. `now`: Unix time."""
    return min((_grace(pod, now) for pod in pods if not is_over(pod)), default=DEFAULT_GRACE)


def _grace(pod: Document, now: float) -> float:
    """The pod's remaining grace period in seconds; it ends at `deletionTimestamp`."""
    metadata = pod["metadata"]
    graces = (metadata.get("deletionGracePeriodSeconds"), mapping(pod.get("spec")).get("terminationGracePeriodSeconds"))
    whole = next((float(each) for each in graces if isinstance(each, int | float)), DEFAULT_GRACE)
    ends = metadata.get("deletionTimestamp")
    return whole if not ends else min(max(datetime.fromisoformat(str(ends)).timestamp() - now, 0.0), whole)


def left_by(key: JobName, pods: Sequence[Document], job: Document | None, now: float) -> Document | None:
    """The job that was deleted while no master ran and whose pods still run, derived from the pods; None if there is
    none. `job`: the present ElasticJob of that name, if there is one."""
    running = [pod for pod in pods if not is_over(pod)]
    uid = None if job is None else job["metadata"]["uid"]
    own = [pod for pod in running if _of_ours(pod, uid)]
    if own:
        return _own(key, own, now)
    is_adopted = job is None and running and all(pod["metadata"].get("deletionTimestamp") for pod in running)
    owner = controller_of(running[0]["metadata"]) if is_adopted else None
    return None if owner is None else _adopted(key, running, owner, now)


def _of_ours(pod: Document, uid: str | None) -> bool:
    controller = mapping(controller_of(pod["metadata"]))
    return controller.get("kind") == KIND and controller.get("uid") != uid


def _own(key: JobName, pods: Sequence[Document], now: float) -> Document:
    namespace, _, name = key.rpartition("/")
    metadata = {"name": name, "namespace": namespace, "uid": mapping(controller_of(pods[0]["metadata"]))["uid"]}
    spec: Document = {"replicaSpecs": {"worker": {"replicas": len(pods)}}, "recovery": _patience(pods, now)}
    if signal := mapping(pods[0]["metadata"].get("annotations")).get(SAVE_SIGNAL):
        spec["saveSignal"] = signal
    return {"apiVersion": GROUP_VERSION, "kind": KIND, "metadata": metadata | {"resourceVersion": ""}, "spec": spec}


def _adopted(key: JobName, pods: Sequence[Document], owner: Document, now: float) -> Document:
    namespace = key.rpartition("/")[0]
    of_owner = {"name": owner["name"], "namespace": namespace, "uid": owner.get("uid")}
    whose = {"apiVersion": owner.get("apiVersion"), "kind": owner["kind"], "metadata": of_owner}
    job = elasticjob_adopted.adopting(whose, len(pods), pods[0])
    job["metadata"] |= {"name": key.rpartition("/")[2], "uid": "", "resourceVersion": ""}
    job["spec"]["recovery"] = _patience(pods, now)
    return job


def _patience(pods: Sequence[Document], now: float) -> Document:
    """`recovery.silentAfter`: half of the remaining grace, as all members must report before a save is requested."""
    return {"silentAfter": max(int(seconds_left(pods, now) / 2), 3)}


def is_foreground(job: Document) -> bool:
    """Whether the job is being deleted in the foreground: its pods first."""
    return FOREGROUND in entries(job["metadata"].get("finalizers"))


def goes(pod: Document) -> bool:
    """Whether the pod must be gone before a pod of its name can be created.

    A pod that has ended and has no owner any more (`--cascade=orphan`) stays, so that its log can be read.
    """
    return not is_over(pod) or controller_of(pod["metadata"]) is not None
