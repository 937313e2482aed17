"""How many pods an owner asks for, side by side. The owner is a Job, a JobSet, a PyTorchJob, or whatever else has
replicas.

Of an owner with several pod templates only those count whose pods are of the job: a driver that does not ask for
injection, beside workers that do, is nobody's member, and a world that counted it would wait for it for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.master.core.k8s.owners import annotations as owners_annotations
from outrider.master.core.k8s.owners.pod_templates import replica_specs, templates_of
from outrider.master.core.k8s.values import pytorch_fields
from outrider.master.core.k8s.values import replica_specs as values_replica_specs
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import INJECT, KIND, MAX, MIN, Document
from outrider.master.core.spec import WORKER


@dataclass(frozen=True, slots=True)
class Size:
    """Pods of a job: min ≤ replicas ≤ max. `nproc`: None where nobody says it."""

    min: int
    max: int
    replicas: int
    nproc: int | None = None


def size_of(owner: Document, pod: Document | None = None) -> Size:
    """What the owner asks for; `pod`, any of its pods, or its template else, may say min, max and nproc-per-node by
    annotation. Raises ValueError where the two cannot both be meant."""
    spec, metadata = mapping(owner.get("spec")), mapping(owner.get("metadata"))
    if pod is None:
        pod = next((template.holder for template in templates_of(owner)), {})
    asked = owners_annotations.read(mapping(mapping(pod.get("metadata")).get("annotations")))
    least, most, replicas, nproc = _said(str(owner.get("kind")), spec)
    if owner.get("kind") == "Pod":  # some of a kind, which only the annotations count
        replicas = most = asked.most or asked.least or 1
        least = asked.least or replicas
    what = f"the {replicas} pods of {owner.get('kind')} {metadata.get('name')}"
    if asked.least is not None and asked.least > replicas:
        raise ValueError(f"annotation {MIN}: {asked.least} is more than {what}; it may be from 1 to {replicas}")
    if asked.most is not None and asked.most < replicas:
        raise ValueError(f"annotation {MAX}: {asked.most} is less than {what}; it may be {replicas} or more")
    return Size(
        least if asked.least is None else asked.least,
        most if asked.most is None else asked.most,
        replicas,
        nproc if asked.nproc is None else asked.nproc,
    )


def _said(kind: str, spec: Document) -> tuple[int, int, int, int | None]:
    """min, max, replicas, nproc of an owner's own fields."""
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
    """Of a JobSet, in its order: the name of each replicated Job, how many Jobs it is, and pods of each of them."""
    jobs = [mapping(job) for job in entries(spec.get("replicatedJobs"))]
    templates = [mapping(mapping(job.get("template")).get("spec")) for job in jobs]
    joins = _joining([mapping(template.get("template")) for template in templates])
    return [
        (str(job.get("name")), count_of(job.get("replicas")), job_pods(template) if is_member else 0)
        for job, template, is_member in zip(jobs, templates, joins, strict=True)
    ]


def job_pods(spec: Document) -> int:
    """Pods of a Job that run side by side."""
    parallelism, completions = whole(spec.get("parallelism")), whole(spec.get("completions"))
    if parallelism is None:
        return 1  # the API server's default, whatever completions says
    return parallelism if completions is None else min(parallelism, completions)


# -- the training operator's kinds --------------------------------------------------------------------------------
def members_by_role(spec: Document) -> dict[str, int]:
    """Of a PyTorchJob or its like, by lower-case role; empty for any other kind."""
    specs = {str(role).lower(): mapping(of_role) for role, of_role in replica_specs(spec).items()}
    joins = _joining([mapping(of_role.get("template")) for of_role in specs.values()])
    return {
        role: count_of(of_role.get("replicas"))
        for (role, of_role), is_member in zip(specs.items(), joins, strict=True)
        if is_member
    }


def _of_operator(spec: Document, counts: Mapping[str, int]) -> tuple[int, int, int, int | None]:
    """A PyTorchJob, or another of the training operator's. Its elasticPolicy counts workers only."""
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
    """Which of an owner's templates make members: those that ask by their label, where any does; else the namespace
    asks, for all that do not say no."""
    said = [mapping(mapping(template.get("metadata")).get("labels")).get(INJECT) for template in templates]
    asked = "true" in said
    return (own == "true" if asked else own != "false" for own in said)


def count_of(value: Any) -> int:
    """Of replicas, which are one where none are given."""
    count = whole(value)
    return 1 if count is None else count
