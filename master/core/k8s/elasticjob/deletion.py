"""A job that was deleted: which pods are still its own, until when, and whether it ends at all.

Kubernetes deletes the ElasticJob first and its pods behind it, each with its grace; of another controller's job the
pods and the ElasticJob, in any order. Meanwhile its user may have applied a job of the same name, whose pods have the
same label, so that owner references and moments of creation have to tell the two apart.

A master that ends meanwhile is followed by one that finds only the pods: what it has to know of their job is made from
them (`left_by`), and what runs in them their sidecars say.
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
FOREGROUND = "foregroundDeletion"
"""The finalizer with which an object waits for those that it owns, and which are deleted before it."""


def is_deleted(job: Document) -> bool:
    """It is there only because a finalizer keeps it."""
    return bool(job["metadata"].get("deletionTimestamp"))


def is_its(pod: Document, job: Document) -> bool:
    """No pod of another ElasticJob of that name."""
    controller = mapping(controller_of(pod["metadata"]))
    return controller.get("kind") != KIND or controller.get("uid") == job["metadata"]["uid"]


def why_it_ends(job: Document, owner: Document | None) -> str:
    """Empty: its pods stay. `owner`: of pods that another controller makes, as it reads now; empty where it is not
    there, None where it cannot be read."""
    adopts = mapping(job["spec"].get("adopts"))
    if not adopts:
        return "its ElasticJob was deleted"
    if owner is None or (_is_the_owner(owner, job) and not owner["metadata"].get("deletionTimestamp")):
        return ""
    return f"{adopts['kind']} {adopts['name']} was deleted"


def still_its(pods: Iterable[Document], job: Document, owner: Document | None) -> list[Document]:
    """Without those of another owner of the same name, which are as old as that one at the most."""
    made = "" if not owner or _is_the_owner(owner, job) else str(owner["metadata"].get("creationTimestamp") or "")
    return [pod for pod in pods if is_its(pod, job) and not (made and _made(pod) >= made)]


def _made(pod: Document) -> str:
    """RFC 3339 in UTC, to the second: as text it is in the order of time."""
    return str(pod["metadata"].get("creationTimestamp") or "")


def _is_the_owner(owner: Document, job: Document) -> bool:
    uids = {mapping(each).get("uid") for each in entries(job["metadata"].get("ownerReferences"))}
    return bool(owner) and (not uids or owner["metadata"].get("uid") in uids)


def seconds_left(pods: Sequence[Document], now: float) -> float:
    """The shortest grace among those that run, or what is left of it. `now`: a unix time."""
    return min((_grace(pod, now) for pod in pods if not is_over(pod)), default=DEFAULT_GRACE)


def _grace(pod: Document, now: float) -> float:
    """`deletionTimestamp` is the moment at which it has to be gone."""
    metadata = pod["metadata"]
    said = (metadata.get("deletionGracePeriodSeconds"), mapping(pod.get("spec")).get("terminationGracePeriodSeconds"))
    whole = next((float(each) for each in said if isinstance(each, int | float)), DEFAULT_GRACE)
    ends = metadata.get("deletionTimestamp")
    return whole if not ends else min(max(datetime.fromisoformat(str(ends)).timestamp() - now, 0.0), whole)


def left_by(key: JobName, pods: Sequence[Document], job: Document | None, now: float) -> Document | None:
    """The job that was deleted while no master looked and whose pods still run, as far as they tell; None where there
    is none. `job`: the ElasticJob of that name that there is."""
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
    """All members have to be heard before one can be asked to save: up to half of the time that is left."""
    return {"silentAfter": max(int(seconds_left(pods, now) / 2), 3)}


def is_foreground(job: Document) -> bool:
    """Its pods are being deleted, though it is still there."""
    return FOREGROUND in entries(job["metadata"].get("finalizers"))


def goes(pod: Document) -> bool:
    """It is still to go: nobody else of its name can come before. One that has ended and that nobody owns any more
    (`--cascade=orphan`) is left to be read."""
    return not is_over(pod) or controller_of(pod["metadata"]) is not None
