"""A job that was deleted: which pods are still its own, until when, and whether it ends at all.

Kubernetes deletes the ElasticJob first and its pods behind it, each with its grace; of another controller's job the
pods and the ElasticJob, in any order. Meanwhile its user may have applied a job of the same name, whose pods have the
same label, so that owner references and moments of creation have to tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from master.core.cluster.names import KIND, Document
from master.core.cluster.owners_references import controller_of
from master.core.cluster.parts import entries, mapping
from master.core.cluster.pods import is_over

DEFAULT_GRACE = 30.0
FOREGROUND = "foregroundDeletion"
"""The finalizer with which an object waits for those that it owns, and which are deleted before it."""


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


def seconds_left(pods: Sequence[Document]) -> float:
    """The shortest grace among those that run."""
    return min((_grace(pod) for pod in pods if not is_over(pod)), default=DEFAULT_GRACE)


def _grace(pod: Document) -> float:
    said = (
        pod["metadata"].get("deletionGracePeriodSeconds"),
        mapping(pod.get("spec")).get("terminationGracePeriodSeconds"),
    )
    return next((float(each) for each in said if isinstance(each, int | float)), DEFAULT_GRACE)


def is_foreground(job: Document) -> bool:
    """Its pods are being deleted, though it is still there."""
    return FOREGROUND in entries(job["metadata"].get("finalizers"))


def goes(pod: Document) -> bool:
    """It is still to go: nobody else of its name can come before. One that has ended and that nobody owns any more
    (`--cascade=orphan`) is left to be read."""
    return not is_over(pod) or controller_of(pod["metadata"]) is not None
