"""Scaling the owner of adopted pods: the field with its size, and the owners that cannot be scaled.

A StatefulSet, Deployment or ReplicaSet has `replicas`. In a training operator's job only the workers are scaled. A Job
runs `parallelism` pods, at most as many as its `completions`; the completions can be changed only with the parallelism
of an Indexed Job (an elastic Job, Kubernetes 1.27). The pods of a JobSet are fixed when it is created, and lone pods
have no owner that could create another.
"""

from __future__ import annotations

from outrider.master.core.k8s.owners.pod_templates import replica_specs
from outrider.master.core.k8s.owners.sizes import members_by_role, size_of
from outrider.master.core.k8s.values.field_errors import forbidden
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.limits import Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.replica_specs import roles_of, sizes
from outrider.master.core.spec import WORKER

BY_REPLICAS = ("StatefulSet", "Deployment", "ReplicaSet")


class CannotResize(Exception):
    """The owner cannot be scaled; the message has the reason."""


def owns(owner: Document, job: Document) -> bool:
    """Whether the ElasticJob belongs to this object, by its UID and not only its name."""
    uid = mapping(owner.get("metadata")).get("uid")
    references = entries(mapping(job.get("metadata")).get("ownerReferences"))
    return bool(uid) and uid in [mapping(each).get("uid") for each in references]


def owning_uid(job: Document, owner: Document) -> str:
    """The owner's UID.

    Raises CannotResize if the ElasticJob does not belong to the owner: permission to write ElasticJobs must not become
    permission to scale other objects.
    """
    if not owns(owner, job):
        metadata = mapping(owner.get("metadata"))
        raise CannotResize(
            f"{owner.get('kind')} {metadata.get('name')} (uid {metadata.get('uid')}) does not own this ElasticJob "
            f"(metadata.ownerReferences), so it is not scaled"
        )
    return str(owner["metadata"]["uid"])


def replicas_of(owner: Document) -> int:
    """The number of pods that the owner requests now."""
    return size_of(owner, {}).replicas


def patch_of(owner: Document, replicas: int) -> Document:
    """The merge patch that scales the owner. Raises CannotResize."""
    kind, name, spec = str(owner.get("kind")), mapping(owner.get("metadata")).get("name"), mapping(owner.get("spec"))
    if kind in BY_REPLICAS:
        return {"spec": {"replicas": replicas}}
    if kind == "Job":
        return {"spec": _of_job(name, spec, replicas)}
    if replica_specs(spec):
        return {"spec": _of_operator(kind, name, spec, replicas)}
    raise CannotResize(f"{kind} {name} cannot be scaled while it runs")


def _of_job(name: object, spec: Document, replicas: int) -> Document:
    completions = whole(spec.get("completions"))
    if completions is None:
        return {"parallelism": replicas}
    if spec.get("completionMode") == "Indexed" and completions == whole(spec.get("parallelism")):
        return {"parallelism": replicas, "completions": replicas}
    raise CannotResize(
        f"Job {name} has {completions} completions, which cannot be changed; only a Job without completions, or an "
        f"Indexed Job whose completions equal its parallelism, can be scaled"
    )


def _of_operator(kind: str, name: object, spec: Document, replicas: int) -> Document:
    field, by_role = next((field, value) for field, value in spec.items() if value == replica_specs(spec))
    worker = next((role for role in by_role if str(role).lower() == WORKER), None)
    others = sum(count for role, count in members_by_role(spec).items() if role != WORKER)
    if worker is None:
        raise CannotResize(f"{kind} {name} has no workers")
    if replicas < others + 1:
        raise CannotResize(f"{kind} {name} has {others} pods of other roles and needs at least one worker")
    return {field: {worker: {"replicas": replicas - others}}}


def check(job: Document, replicas: int, limits: Limits) -> None:
    """Raises CannotResize if the ElasticJob may not follow its owner to this size."""
    if replicas > limits.members:
        adopts = mapping(job["spec"].get("adopts"))
        raise CannotResize(
            f"{adopts.get('kind')} {adopts.get('name')} has {replicas} replicas, but a job in this installation may "
            f"have at most {limits.members} members; pods beyond the job's size do not train, so scale it back"
        )


def following(job: Document, replicas: int) -> Document:
    """The merge patch that gives the ElasticJob its owner's size, and widens its limits if necessary."""
    least, most, _ = sizes(roles_of(job).get(WORKER, {}))
    bounds = {"minReplicas": min(least, replicas), "maxReplicas": max(most, replicas)}
    return {"spec": {"replicaSpecs": {str(WORKER): {"replicas": replicas, **bounds}}}}


def refusal(job: Document, owner: Document | None, target: int) -> str:
    """The field error if the owner cannot be scaled to the size of the ElasticJob; empty if it can.

    `owner`: the last known document of the owner; `target`: the size that the job runs with.
    """
    desired, adopts = sizes(roles_of(job).get(WORKER, {}))[2], mapping(job["spec"].get("adopts"))
    if not adopts or desired == target or (owner is not None and desired == replicas_of(owner)):
        return ""
    known = {"spec": {}, **adopts, "metadata": {"name": adopts.get("name")}} if owner is None else owner
    try:
        if owner is not None or known.get("kind") in ("Pod", "JobSet"):
            patch_of(known, desired)
    except CannotResize as error:
        return forbidden(f"spec.replicaSpecs.{WORKER}.replicas", str(error))
    return ""
