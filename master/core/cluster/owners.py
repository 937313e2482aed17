"""Whose pod is this: does it ask to be injected, which job is it of, which rank index has it, how many are there?

Nothing is asked of the user that other controllers say already, by their labels and owner references. A rank index that
nobody says is None, and then the master gives the lowest free one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from master.core.cluster import elasticjob, owners_annotations
from master.core.cluster.elasticjob import entries, mapping, whole
from master.core.cluster.injection_containers import Place
from master.core.cluster.names import INJECT, JOB, KIND, MAX, MEMBER, MIN, RANK_INDEX, ROLE, Document
from master.core.cluster.owners_templates import JOBSET_NAME, REPLICA_TYPE, replica_specs, templates_of
from master.core.spec import WORKER

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_INDEX, JOB_GLOBAL_INDEX = "jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io/job-global-index"
JOBSET_REPLICAS, JOBSET_GLOBAL_REPLICAS = (
    "jobset.sigs.k8s.io/replicatedjob-replicas",
    "jobset.sigs.k8s.io/global-replicas",
)
REPLICA_INDEX = "training.kubeflow.org/replica-index"
WELL_KNOWN = (JOBSET_NAME, "training.kubeflow.org/job-name", "batch.kubernetes.io/job-name", "job-name")
"""Labels with a job's name: the outermost controller first."""
TEMPLATE_HASH = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Size:
    """Pods of a job: min ≤ replicas ≤ max. `nproc`: None where nobody says it."""

    min: int
    max: int
    replicas: int
    nproc: int | None = None


# -- the place of a pod -------------------------------------------------------------------------------------------
def place_of(
    pod: Document, namespace: str, namespace_labels: Mapping[str, Any], owners: Sequence[Document] = ()
) -> Place | None:
    """None: it does not ask for us. `owners`: documents of its owners and theirs, where they are known: they say what a
    pod of a JobSet or a Deployment does not. Raises ValueError, which names the annotation and what it may be."""
    metadata = mapping(pod.get("metadata"))
    labels, notes = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    if not is_asked_for(labels, namespace_labels):
        return None
    asked = owners_annotations.read(notes)
    return Place(
        job=asked.job if asked.job and not labels.get(JOB) else _job(metadata, labels, owners),
        namespace=namespace,
        role=str(labels.get(ROLE) or labels.get(REPLICA_TYPE) or WORKER).lower(),
        member=str(labels.get(MEMBER) or ""),
        rank_index=_rank_index(metadata, labels, notes, owners),
        nproc=asked.nproc,
        script=asked.script,
        pythonpath=asked.pythonpath,
        per_rank=asked.per_rank,
        container=asked.container,
        max_restarts=asked.max_restarts,
    )


def is_asked_for(labels: Mapping[str, Any], namespace_labels: Mapping[str, Any]) -> bool:
    """By the pod's own label, or by its namespace's where the pod does not say no."""
    own = labels.get(INJECT)
    return own == "true" or (own != "false" and namespace_labels.get(INJECT) == "enabled")


def _job(metadata: Document, labels: Document, owners: Sequence[Document]) -> str:
    for label in (JOB, *WELL_KNOWN):
        if labels.get(label):
            return owners_annotations.named(str(labels[label]), f"label {label}")
    reference = controller_of(metadata)
    if reference is None:
        name = str(metadata.get("name") or metadata.get("generateName") or "").rstrip("-")
        return owners_annotations.named(name, "the pod's name")
    kind, name = _top(reference, labels, owners)
    return owners_annotations.named(name, f"the name of the pod's owner, a {kind}")


def controller_of(metadata: Document) -> Document | None:
    """The owner reference of the one controller that makes and deletes it."""
    references = (mapping(reference) for reference in entries(metadata.get("ownerReferences")))
    return next((reference for reference in references if reference.get("controller")), None)


def _top(reference: Document, labels: Document, owners: Sequence[Document]) -> tuple[str, str]:
    """Kind and name of the outermost owner. Of a Deployment's pod the ReplicaSet's name tells it, which a roll-out
    changes."""
    for _ in owners:
        above = controller_of(mapping(mapping(_document(reference, owners)).get("metadata")))
        if above is None:
            break
        reference = above
    kind, name = str(reference.get("kind")), str(reference.get("name") or "")
    suffix = f"-{labels.get(TEMPLATE_HASH)}"
    if kind == "ReplicaSet" and labels.get(TEMPLATE_HASH) and name.endswith(suffix):
        return "Deployment", name.removesuffix(suffix)
    return kind, name


def _document(reference: Document, owners: Sequence[Document]) -> Document | None:
    for owner in owners:
        metadata = mapping(owner.get("metadata"))
        is_it = (owner.get("kind"), metadata.get("name")) == (reference.get("kind"), reference.get("name"))
        if is_it and reference.get("uid") in (None, metadata.get("uid")):
            return owner
    return None


# -- the rank index -----------------------------------------------------------------------------------------------
def _rank_index(metadata: Document, labels: Document, notes: Document, owners: Sequence[Document]) -> int | None:
    if labels.get(RANK_INDEX):
        found = _index(labels[RANK_INDEX])
        if found is None:
            raise ValueError(f"label {RANK_INDEX}: {labels[RANK_INDEX]!r} must be a whole number from 0")
        return found
    if MEMBER in labels:
        return None  # a spare of an ElasticJob
    completion = _index(labels.get(COMPLETION_INDEX, notes.get(COMPLETION_INDEX)))
    if labels.get(JOBSET_NAME):
        return _in_jobset(metadata, labels, completion, owners)
    if completion is not None:
        return completion
    reference = controller_of(metadata)
    if reference is not None and reference.get("kind") == "StatefulSet":
        owner = mapping(_document(reference, owners))
        first = whole(mapping(mapping(owner.get("spec")).get("ordinals")).get("start")) or 0
        ordinal = _index(str(metadata.get("name") or "").rpartition("-")[2])
        return None if ordinal is None or ordinal < first else ordinal - first
    return _index(labels.get(REPLICA_INDEX))


def _in_jobset(metadata: Document, labels: Document, completion: int | None, owners: Sequence[Document]) -> int | None:
    """Jobs are counted through the whole JobSet, each with as many pods as this one's. How many, the pod does not say;
    where the Job is not among the owners, only a JobSet of one Job can be counted."""
    index = _index(labels.get(JOB_GLOBAL_INDEX, labels.get(JOB_INDEX)))
    if _index(labels.get(JOBSET_GLOBAL_REPLICAS, labels.get(JOBSET_REPLICAS))) == 1:
        return 0 if completion is None else completion
    reference = controller_of(metadata)
    job = None if reference is None else _document(reference, owners)
    if job is None or index is None:
        return None
    pods = _job_pods(mapping(job.get("spec")))
    if completion is None and pods > 1:
        return None
    return index * pods + (completion or 0)


def _index(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


# -- the size of a job --------------------------------------------------------------------------------------------
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
        least, most, replicas = elasticjob.sizes(elasticjob.roles_of({"spec": spec}).get(WORKER, {}))
        return least, most, replicas, whole(spec.get("nprocPerNode"))
    if kind == "JobSet":
        jobs = [mapping(job) for job in entries(spec.get("replicatedJobs"))]
        pods = [_job_pods(mapping(mapping(job.get("template")).get("spec"))) for job in jobs]
        count = sum(_count(job.get("replicas")) * each for job, each in zip(jobs, pods, strict=True))
        return count, count, count, None
    if by_role := replica_specs(spec):
        return _of_operator(spec, by_role)
    count = _job_pods(spec) if kind == "Job" else _count(spec.get("replicas"))
    return count, count, count, None


def _of_operator(spec: Document, by_role: Mapping[str, Any]) -> tuple[int, int, int, int | None]:
    """A PyTorchJob, or another of the training operator's. Its elasticPolicy counts workers only."""
    counts = {str(role).lower(): _count(mapping(of_role).get("replicas")) for role, of_role in by_role.items()}
    replicas, workers, policy = sum(counts.values()), counts.get(WORKER, 0), mapping(spec.get("elasticPolicy"))
    least, most = whole(policy.get("minReplicas")), whole(policy.get("maxReplicas"))
    nproc = str(spec.get("nprocPerNode") or policy.get("nProcPerNode") or "")
    return (
        replicas if least is None else replicas - workers + min(least, workers),
        replicas if most is None else replicas - workers + max(most, workers),
        replicas,
        _index(nproc) or None,
    )


def _job_pods(spec: Document) -> int:
    """Pods of a Job that run side by side."""
    parallelism, completions = whole(spec.get("parallelism")), whole(spec.get("completions"))
    if parallelism is None:
        return 1  # the API server's default, whatever completions says
    return parallelism if completions is None else min(parallelism, completions)


def _count(value: object) -> int:
    count = whole(value)
    return 1 if count is None else count
