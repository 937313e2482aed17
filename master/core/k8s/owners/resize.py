"""Another size for the owner of adopted pods: which of its fields says it, and whose size cannot be changed.

A StatefulSet, Deployment or ReplicaSet has `replicas`. Of a training operator's job the workers are changed, the other
roles stay. A Job runs `parallelism` pods; where it has completions too these bound it, and only those of an Indexed Job
may be changed with it (an elastic Job, Kubernetes 1.27). The pods of a JobSet are fixed when it is made, and lone pods
have no owner that could make another.
"""

from __future__ import annotations

from outrider.master.core.k8s.owners.pod_templates import replica_specs
from outrider.master.core.k8s.owners.sizes import members_by_role, size_of
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.limits import Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.replica_specs import roles_of, sizes
from outrider.master.core.spec import WORKER

BY_REPLICAS = ("StatefulSet", "Deployment", "ReplicaSet")


class CannotResize(Exception):
    """The sentence says why."""


def owns(owner: Document, job: Document) -> bool:
    """It is the very object that the ElasticJob belongs to, and none of its name only."""
    uid = mapping(owner.get("metadata")).get("uid")
    references = entries(mapping(job.get("metadata")).get("ownerReferences"))
    return bool(uid) and uid in [mapping(each).get("uid") for each in references]


def owning_uid(job: Document, owner: Document) -> str:
    """The owner's uid. Raises CannotResize where the ElasticJob does not belong to it: a right to write ElasticJobs is
    none to change what others have made."""
    if not owns(owner, job):
        metadata = mapping(owner.get("metadata"))
        raise CannotResize(
            f"{owner.get('kind')} {metadata.get('name')} (uid {metadata.get('uid')}) does not own this ElasticJob "
            f"(metadata.ownerReferences), so that its size is not changed"
        )
    return str(owner["metadata"]["uid"])


def replicas_of(owner: Document) -> int:
    """Pods that it asks for now."""
    return size_of(owner, {}).replicas


def patch_of(owner: Document, replicas: int) -> Document:
    """The merge patch for so many pods. Raises CannotResize."""
    kind, name, spec = str(owner.get("kind")), mapping(owner.get("metadata")).get("name"), mapping(owner.get("spec"))
    if kind in BY_REPLICAS:
        return {"spec": {"replicas": replicas}}
    if kind == "Job":
        return {"spec": _of_job(name, spec, replicas)}
    if replica_specs(spec):
        return {"spec": _of_operator(kind, name, spec, replicas)}
    raise CannotResize(f"the pods of {kind} {name} cannot be made more or fewer while it runs")


def _of_job(name: object, spec: Document, replicas: int) -> Document:
    completions = whole(spec.get("completions"))
    if completions is None:
        return {"parallelism": replicas}
    if spec.get("completionMode") == "Indexed" and completions == whole(spec.get("parallelism")):
        return {"parallelism": replicas, "completions": replicas}
    raise CannotResize(
        f"Job {name} has {completions} completions, which cannot be changed; only a Job without completions, or an "
        f"Indexed one with as many as its parallelism, can be resized"
    )


def _of_operator(kind: str, name: object, spec: Document, replicas: int) -> Document:
    field, by_role = next((field, value) for field, value in spec.items() if value == replica_specs(spec))
    worker = next((role for role in by_role if str(role).lower() == WORKER), None)
    others = sum(count for role, count in members_by_role(spec).items() if role != WORKER)
    if worker is None:
        raise CannotResize(f"{kind} {name} has no workers")
    if replicas < others + 1:
        raise CannotResize(f"{kind} {name} has {others} pods that are no workers, and one worker is the least")
    return {field: {worker: {"replicas": replicas - others}}}


def check(job: Document, replicas: int, limits: Limits) -> None:
    """Whether an adopting ElasticJob may follow its owner to this size. Raises CannotResize."""
    if replicas > limits.members:
        adopts = mapping(job["spec"].get("adopts"))
        raise CannotResize(
            f"{adopts.get('kind')} {adopts.get('name')} wants {replicas} pods, and a job may have {limits.members} "
            f"members here; those beyond the job's own size are no members, so scale it back"
        )


def following(job: Document, replicas: int) -> Document:
    """The merge patch with which the adopting ElasticJob takes its owner's size; its bounds give way if they must."""
    least, most, _ = sizes(roles_of(job).get(WORKER, {}))
    bounds = {"minReplicas": min(least, replicas), "maxReplicas": max(most, replicas)}
    return {"spec": {"replicaSpecs": {str(WORKER): {"replicas": replicas, **bounds}}}}


def refusal(job: Document, owner: Document | None, target: int) -> str:
    """Why this size of an adopting ElasticJob cannot be had, as a sentence that begins with the field; empty where it
    can. `owner`: as it was read last; `target`: what the job runs with."""
    wanted, adopts = sizes(roles_of(job).get(WORKER, {}))[2], mapping(job["spec"].get("adopts"))
    if not adopts or wanted == target or (owner is not None and wanted == replicas_of(owner)):
        return ""
    known = {"spec": {}, **adopts, "metadata": {"name": adopts.get("name")}} if owner is None else owner
    try:
        if owner is not None or known.get("kind") in ("Pod", "JobSet"):
            patch_of(known, wanted)
    except CannotResize as error:
        return f"spec.replicaSpecs.{WORKER}.replicas: {error}"
    return ""
