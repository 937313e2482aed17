"""The number of pods that an owner runs in parallel.

An owner is a Job, a JobSet, a PyTorchJob or any kind with replicas.

If an owner has several pod templates, only those whose pods belong to the job count. A driver that does not request
injection, beside workers that do, is not a member: a generation that counted it would wait for it for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.master.core.k8s.owners import annotations as owners_annotations
from outrider.master.core.k8s.owners.pod_templates import replica_specs, templates_of
from outrider.master.core.k8s.values import pytorch_fields
from outrider.master.core.k8s.values import replica_specs as values_replica_specs
from outrider.master.core.k8s.values.field_errors import invalid
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import INJECT, KIND, MAX, MIN, Document
from outrider.master.core.spec import WORKER


@dataclass(frozen=True, slots=True)
class Size:
    """Number of pods of a job: min ≤ replicas ≤ max. `nproc`: None if it is not set."""

    min: int
    max: int
    replicas: int
    nproc: int | None = None


def size_of(owner: Document, pod: Document | None = None) -> Size:
    """The size of an owner.

    `pod`: any of its pods, by default its template; its annotations may set min, max and nproc-per-node. Raises
    ValueError if the annotations contradict the owner.
    """
    spec, metadata = mapping(owner.get("spec")), mapping(owner.get("metadata"))
    if pod is None:
        pod = next((template.holder for template in templates_of(owner)), {})
    requested = owners_annotations.read(mapping(mapping(pod.get("metadata")).get("annotations")))
    least, most, replicas, nproc = _own_size(str(owner.get("kind")), spec)
    if owner.get("kind") == "Pod":  # lone pods, whose number only the annotations set
        replicas = most = requested.most or requested.least or 1
        least = requested.least or replicas
    what = f"the number of pods of {owner.get('kind')} {metadata.get('name')}"
    if requested.least is not None and requested.least > replicas:
        raise ValueError(
            invalid(f"metadata.annotations[{MIN}]", requested.least, f"must be between 1 and {replicas}, {what}")
        )
    if requested.most is not None and requested.most < replicas:
        raise ValueError(
            invalid(f"metadata.annotations[{MAX}]", requested.most, f"must be at least {replicas}, {what}")
        )
    return Size(
        least if requested.least is None else requested.least,
        most if requested.most is None else requested.most,
        replicas,
        nproc if requested.nproc is None else requested.nproc,
    )


def _own_size(kind: str, spec: Document) -> tuple[int, int, int, int | None]:
    """min, max, replicas and nproc from the owner's own fields."""
    if kind == KIND:
        meant = pytorch_fields.in_our_words({"spec": spec})
        return *values_replica_specs.members(meant), whole(meant["spec"].get("nprocPerNode"))
    if kind == "JobSet":
        count = sum(jobs * pods for _name, jobs, pods in replicated_jobs(spec))
        return count, count, count, None
    if by_role := members_by_role(spec):
        return _of_operator(spec, by_role)
    count = job_pods(spec) if kind == "Job" else count_of(spec.get("replicas"))
    return count, count, count, None


# -- a JobSet -----------------------------------------------------------------------------------------------------
def replicated_jobs(spec: Document) -> list[tuple[str, int, int]]:
    """For each replicated Job of a JobSet, in order: its name, its number of Jobs, and the pods of each Job."""
    jobs = [mapping(job) for job in entries(spec.get("replicatedJobs"))]
    templates = [mapping(mapping(job.get("template")).get("spec")) for job in jobs]
    joins = _joining([mapping(template.get("template")) for template in templates])
    return [
        (str(job.get("name")), count_of(job.get("replicas")), job_pods(template) if is_member else 0)
        for job, template, is_member in zip(jobs, templates, joins, strict=True)
    ]


def job_pods(spec: Document) -> int:
    """Number of pods of a Job that run in parallel."""
    parallelism, completions = whole(spec.get("parallelism")), whole(spec.get("completions"))
    if parallelism is None:
        return 1  # the API server's default, whatever completions is
    return parallelism if completions is None else min(parallelism, completions)


# -- the training operator's kinds --------------------------------------------------------------------------------
def members_by_role(spec: Document) -> dict[str, int]:
    """Number of members by lower-case role, for a PyTorchJob or the like; empty for any other kind."""
    specs = {str(role).lower(): mapping(of_role) for role, of_role in replica_specs(spec).items()}
    joins = _joining([mapping(of_role.get("template")) for of_role in specs.values()])
    return {
        role: count_of(of_role.get("replicas"))
        for (role, of_role), is_member in zip(specs.items(), joins, strict=True)
        if is_member
    }


def _of_operator(spec: Document, counts: Mapping[str, int]) -> tuple[int, int, int, int | None]:
    """The size of a training operator's job; its elasticPolicy counts workers only."""
    replicas, workers, policy = sum(counts.values()), counts.get(WORKER, 0), mapping(spec.get("elasticPolicy"))
    least, most = whole(policy.get("minReplicas")), whole(policy.get("maxReplicas"))
    nproc = str(spec.get("nprocPerNode") or policy.get("nProcPerNode") or "")
    return (
        replicas if least is None else replicas - workers + min(least, workers),
        replicas if most is None else replicas - workers + max(most, workers),
        replicas,
        int(nproc) if nproc.isascii() and nproc.isdigit() and len(nproc) < 5 and int(nproc) else None,
    )


# -- counting -----------------------------------------------------------------------------------------------------
def _joining(templates: list[Document]) -> Iterator[bool]:
    """Whether each template of an owner makes members.

    If any template requests injection by its label, only those do; otherwise the namespace requests it for all that do
    not opt out.
    """
    labels = [mapping(mapping(template.get("metadata")).get("labels")).get(INJECT) for template in templates]
    any_requests = "true" in labels
    return (own == "true" if any_requests else own != "false" for own in labels)


def count_of(value: Any) -> int:
    """The value of replicas; 1 if it is missing."""
    count = whole(value)
    return 1 if count is None else count
