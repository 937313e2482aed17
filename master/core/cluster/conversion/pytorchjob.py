"""PyTorchJobs: KubeDL's (training.kubedl.io) and Kubeflow's (kubeflow.org).

Both have a master, which is a worker with rank 0, and workers. Here all of them are workers, since any member may have
rank 0: one more replica, made from the workers' template.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from master.core.cluster.names import Document
from master.core.cluster.parts import entries, mapping, whole

RENDEZVOUS = ("rdzvBackend", "rdzvEndpoint", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone")
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


def of_kubedl(spec: Document) -> tuple[Document, list[str]]:
    made, notes = _converted(spec, spec, mapping(spec.get("elasticPolicy")))
    if spec.get("enableElastic") is True and spec.get("elasticPolicy"):
        made["scaling"] = {"policy": "throughput"}
        worker = made["replicaSpecs"]["worker"]
        if worker.get("minReplicas") == worker.get("maxReplicas"):
            del made["scaling"]
            notes.append("spec.enableElastic: left out: least and most members are the same.")
    return made, notes


def of_kubeflow(spec: Document) -> tuple[Document, list[str]]:
    policy = mapping(spec.get("elasticPolicy"))
    made, notes = _converted(spec, mapping(spec.get("runPolicy")), policy)
    if spec.get("nprocPerNode") is not None and "nprocPerNode" not in made:
        _nproc(made, spec["nprocPerNode"], "spec.nprocPerNode", notes)
    if policy.get("metrics") is not None:
        notes.append("spec.elasticPolicy.metrics: left out: scaling.policy throughput measures the steps themselves.")
    return made, notes


def _converted(spec: Document, run: Document, policy: Document) -> tuple[Document, list[str]]:
    roles = {str(role).lower(): mapping(value) for role, value in mapping(spec.get("pytorchReplicaSpecs")).items()}
    unknown = sorted(set(roles) - {"master", "worker"})
    if not roles or unknown:
        named = f"there is no role {unknown[0]}" if unknown else "it is missing"
        raise ValueError(f"spec.pytorchReplicaSpecs: {named}; a PyTorchJob has Master and Worker")
    notes: list[str] = []
    worker = _worker(roles, notes)
    made: Document = {"replicaSpecs": {"worker": worker}}
    _elastic(made, worker, policy, len([1 for role in roles if role == "master"]), notes)
    _exit_codes(roles, notes)
    where = "spec" if run is spec else "spec.runPolicy"
    if run.get("suspend") is True:
        made["suspend"] = True
    notes += [f"{where}.{name}: left out: {why}." for name, why in NO_COUNTERPART.items() if run.get(name) is not None]
    return made, notes


def _worker(roles: dict[str, Document], notes: list[str]) -> Document:
    """One role out of two."""
    source = roles.get("worker") or roles["master"]
    replicas = sum(1 if whole(role.get("replicas")) is None else int(role["replicas"]) for role in roles.values())
    template = deepcopy(mapping(source.get("template")))
    if "master" in roles and "worker" in roles:
        notes.append(
            f"spec.pytorchReplicaSpecs.Master: it is one of the {replicas} workers, any of which may have rank 0."
        )
        differing = _differences(mapping(roles["master"].get("template")), template)
        if differing:
            notes.append(
                f"spec.pytorchReplicaSpecs.Master.template: its {', '.join(differing)} are other than the Worker's, "
                f"which all members have now."
            )
    pod = template.setdefault("spec", {})
    pod["restartPolicy"] = "OnFailure" if source.get("restartPolicy") == "OnFailure" else "Never"
    return {"replicas": replicas, "template": template}


def _differences(master: Document, worker: Document) -> list[str]:
    """Fields of the first container that are not the same."""
    of_each = [
        mapping(next(iter(entries(mapping(each.get("spec")).get("containers"))), {})) for each in (master, worker)
    ]
    return sorted({f for each in of_each for f in each if f != "name" and of_each[0].get(f) != of_each[1].get(f)})


def _elastic(made: Document, worker: Document, policy: Document, masters: int, notes: list[str]) -> None:
    """Their sizes are of workers; here the master is one of them."""
    for field in ("minReplicas", "maxReplicas"):
        if (size := whole(policy.get(field))) is not None:
            worker[field] = size + masters
    least, most = worker.get("minReplicas"), worker.get("maxReplicas")
    worker["replicas"] = max(least or 1, min(worker["replicas"], most or worker["replicas"]))
    if masters and (least or most):
        notes.append("spec.elasticPolicy: minReplicas and maxReplicas count the master now.")
    if policy.get("nProcPerNode") is not None:
        _nproc(made, policy["nProcPerNode"], "spec.elasticPolicy.nProcPerNode", notes)
    if whole(policy.get("maxRestarts")) is not None:
        made["maxRestarts"] = policy["maxRestarts"]
    if given := [field for field in RENDEZVOUS if policy.get(field) is not None]:
        notes.append(
            f"spec.elasticPolicy.{', '.join(given)}: not needed: the master tells the ranks where to meet; "
            f"there is no etcd."
        )


def _nproc(made: Document, value: Any, path: str, notes: list[str]) -> None:
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    if whole(number) is not None:
        made["nprocPerNode"] = number
    else:
        notes.append(
            f"{path}: {value} is known only in the pod: set spec.nprocPerNode, or leave it to torchrun's own flag."
        )


def _exit_codes(roles: dict[str, Document], notes: list[str]) -> None:
    """Exit code 1 is what any exception of Python's ends with, so it is no reason to give a run up."""
    if any(role.get("restartPolicy") == "ExitCode" for role in roles.values()):
        notes.append(
            "restartPolicy: ExitCode: 130, 134, 135, 137, 138, 139 and 143 are retryable here, the others by budget, "
            "until the same error comes three times without a step; those that are to end a job at once belong into "
            "recovery.exitCodes.permanent."
        )
