"""PyTorchJobs: KubeDL's (training.kubedl.io) and Kubeflow's (kubeflow.org).

An ElasticJob has their roles, their elasticPolicy and their restart policies (`elastic_policy`), so these are carried
over as they are, but for what would only be told to be passed over.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from master.core.cluster import elastic_policy
from master.core.cluster.names import Document
from master.core.cluster.parts import mapping, whole

NO_COUNTERPART = {
    "cleanPodPolicy": "members end with their job; failed pods are kept as keepFailedPods says",
    "ttlSecondsAfterFinished": "an ElasticJob that is over stays until it is deleted",
    "activeDeadlineSeconds": "a job has no deadline; that of a pod is its template's",
    "backoffLimit": "restartLimit counts relaunches of failed pods by rank index, and maxRestarts restarts in place",
    "schedulingPolicy": "set schedulerName, priorityClassName and the labels of your queue in the template",
    "managedBy": "there is one controller",
    "cacheBackend": "data is the pods' own affair",
    "modelVersion": "a model is the script's own affair",
    "mlflow": "a tracker is the script's own affair",
}


ROLE_FIELDS = ("replicas", "restartPolicy", "template")


def of_kubedl(spec: Document) -> tuple[Document, list[str]]:
    made, notes = _converted(spec, spec)
    if isinstance(spec.get("enableElastic"), bool):
        made["enableElastic"] = spec["enableElastic"]
    return made, [*notes, *(remark for remark in elastic_policy.remarks({"spec": made}))]


def of_kubeflow(spec: Document) -> tuple[Document, list[str]]:
    made, notes = _converted(spec, mapping(spec.get("runPolicy")))
    given = spec.get("nprocPerNode")
    number = int(given) if isinstance(given, str) and given.isdigit() else given
    if whole(number) is not None:
        made["nprocPerNode"] = number
    elif given is not None:
        notes.append(
            f"spec.nprocPerNode: {given} is known only in the pod: set spec.nprocPerNode, or leave it to torchrun's "
            f"own flag."
        )
    return made, notes


def _converted(spec: Document, run: Document) -> tuple[Document, list[str]]:
    roles = {str(role).lower(): mapping(value) for role, value in mapping(spec.get("pytorchReplicaSpecs")).items()}
    unknown = sorted(set(roles) - {"master", "worker"})
    if not roles or unknown:
        named = f"there is no role {unknown[0]}" if unknown else "it is missing"
        raise ValueError(f"spec.pytorchReplicaSpecs: {named}; a PyTorchJob has Master and Worker")
    made: Document = {"replicaSpecs": {role: _role(value) for role, value in roles.items()}}
    policy = mapping(spec.get("elasticPolicy"))
    known = {field: value for field, value in policy.items() if field in elastic_policy.FOLLOWED}
    if known:
        made["elasticPolicy"] = known
    where = "spec" if run is spec else "spec.runPolicy"
    if run.get("suspend") is True:
        made["suspend"] = True
    notes = list(elastic_policy.remarks({"spec": {"elasticPolicy": policy}}))
    notes += [f"{where}.{name}: left out: {why}." for name, why in NO_COUNTERPART.items() if run.get(name) is not None]
    return made, notes


def _role(role: Document) -> Document:
    made: dict[str, Any] = {field: deepcopy(role[field]) for field in ROLE_FIELDS if role.get(field) is not None}
    return {"replicas": 1, **made}
