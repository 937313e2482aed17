"""The rank index of another controller's pod: its position among all pods of its job, in any role.

Rank indexes start at 0. Controllers count within a Job, a role or a set. If a job has several of these, the pods of all
earlier ones come first; their number is in the owner's document. If that cannot be read, the rank in the pod's own
variables counts. Without either there is no rank index, and the master assigns the lowest vacant one.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.master.core.generation.layout import ROLE_ORDER
from outrider.master.core.k8s.owners.pod_templates import JOBSET_NAME, REPLICA_TYPE
from outrider.master.core.k8s.owners.references import above, controller_of, meant_by
from outrider.master.core.k8s.owners.sizes import job_pods, members_by_role, replicated_jobs
from outrider.master.core.k8s.values.field_errors import invalid
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import MEMBER, RANK_INDEX, Document

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of an Indexed Job's pods, from Kubernetes 1.28 on also a label."""
JOBSET = "jobset.sigs.k8s.io"
JOB_INDEX, JOB_GLOBAL_INDEX = f"{JOBSET}/job-index", f"{JOBSET}/job-global-index"
REPLICATED_JOB = f"{JOBSET}/replicatedjob-name"
REPLICAS, GLOBAL_REPLICAS = f"{JOBSET}/replicatedjob-replicas", f"{JOBSET}/global-replicas"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
OPERATORS_RANK = ("PET_NODE_RANK", "RANK")
"""Variables that the training operator sets in a PyTorchJob with a Master: 0 for the Master, i + 1 for worker i."""


def needs_owners(pod: Document) -> bool:
    """Whether the owners' documents must be read, because the pod alone does not have its rank index."""
    metadata = mapping(pod.get("metadata"))
    labels, controller = mapping(metadata.get("labels")), controller_of(metadata)
    if controller is None or labels.get(RANK_INDEX) or MEMBER in labels:
        return False
    return bool(labels.get(JOBSET_NAME) or labels.get(REPLICA_INDEX) or controller.get("kind") == "StatefulSet")


def rank_index_of(pod: Document, owners: Sequence[Document]) -> int | None:
    """The rank index of a pod; None if unknown. Raises ValueError if its label has an invalid value."""
    metadata = mapping(pod.get("metadata"))
    labels, notes = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    if labels.get(RANK_INDEX):
        found = _index(labels[RANK_INDEX])
        if found is None:
            why = "must be an integer greater than or equal to 0"
            raise ValueError(invalid(f"metadata.labels[{RANK_INDEX}]", labels[RANK_INDEX], why))
        return found
    if MEMBER in labels:
        return None  # a spare of an ElasticJob
    completion, controller = _index(labels.get(COMPLETION_INDEX, notes.get(COMPLETION_INDEX))), controller_of(metadata)
    if labels.get(JOBSET_NAME):
        return _in_jobset(labels, completion, meant_by(controller, owners), owners)
    if completion is not None:
        return completion
    if controller is not None and controller.get("kind") == "StatefulSet":
        return _in_stateful_set(str(metadata.get("name") or ""), mapping(meant_by(controller, owners)))
    return _of_operator(pod, labels, mapping(meant_by(controller, owners)))


def _in_stateful_set(name: str, owner: Document) -> int | None:
    first = whole(mapping(mapping(owner.get("spec")).get("ordinals")).get("start")) or 0
    ordinal = _index(name.rpartition("-")[2])
    return None if ordinal is None or ordinal < first else ordinal - first


# -- JobSet -------------------------------------------------------------------------------------------------------
def _in_jobset(
    labels: Document, completion: int | None, job: Document | None, owners: Sequence[Document]
) -> int | None:
    """The rank index of a JobSet's pod: after the pods of all earlier Jobs.

    A pod has the index of its own Job, but not the number of pods of earlier ones. So without a document only the pods
    of a JobSet of one Job have a known rank index.
    """
    jobset = above(job, owners)
    if jobset is not None and jobset.get("kind") == "JobSet":
        return _among_replicated_jobs(labels, completion, mapping(jobset.get("spec")))
    replicas, of_all = (_index(labels.get(label)) for label in (REPLICAS, GLOBAL_REPLICAS))
    if (replicas if of_all is None else of_all) == 1:
        return completion or 0
    if job is None or of_all not in (None, replicas):
        return None
    index = _index(labels.get(JOB_INDEX, labels.get(JOB_GLOBAL_INDEX)))
    return _behind(0, index, job_pods(mapping(job.get("spec"))), completion)


def _among_replicated_jobs(labels: Document, completion: int | None, spec: Document) -> int | None:
    before = 0
    for name, jobs, pods in replicated_jobs(spec):
        if name == labels.get(REPLICATED_JOB):
            return _behind(before, _index(labels.get(JOB_INDEX)), pods, completion)
        before += jobs * pods
    return None


def _behind(before: int, index: int | None, pods: int, completion: int | None) -> int | None:
    """The rank index in the Job with this index. A Job without completion indexes has a rank index for one pod only."""
    if index is None or (completion is None and pods > 1):
        return None
    return before + index * pods + (completion or 0)


# -- the training operator's kinds --------------------------------------------------------------------------------
def _of_operator(pod: Document, labels: Document, owner: Document) -> int | None:
    index, role = _index(labels.get(REPLICA_INDEX)), str(labels.get(REPLICA_TYPE)).lower()
    if index is None:
        return None
    counts, own_rank = members_by_role(mapping(owner.get("spec"))), _rank_variable(pod)
    if role not in counts and own_rank is not None:
        return own_rank
    return sum(count for each, count in counts.items() if _order(each) < _order(role)) + index


def _order(role: str) -> tuple[int, str]:
    return ROLE_ORDER.get(role, len(ROLE_ORDER)), role


def _rank_variable(pod: Document) -> int | None:
    """The rank that the operator has set in any container; of two variables with one name the last counts."""
    for name in OPERATORS_RANK:
        for container in map(mapping, entries(mapping(pod.get("spec")).get("containers"))):
            values = [entry.get("value") for entry in map(mapping, entries(container.get("env")))
                    if entry.get("name") == name]  # fmt: skip
            if values and (rank := _index(values[-1])) is not None:
                return rank
    return None


def _index(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None
