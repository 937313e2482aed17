"""Converts DLRover's ElasticJob (elastic.iml.github.io), whose commands have flags that belong into our spec."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from outrider.cli.conversion import launchers, variables
from outrider.cli.conversion.launchers import Found
from outrider.cli.conversion.leaving import filled, left_out, with_trainer
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import Document

ALLREDUCE, PARAMETER_SERVERS = "AllreduceStrategy", "ParameterServerStrategy"
NOT_NEEDED = {
    "optimizeMode": "there is no Brain service; spec.scaling finds a size from measured steps",
    "brainService": "there is no Brain service",
    "enableElasticScheduling": "a job is elastic if minReplicas is less than maxReplicas",
    "enableDynamicSharding": "spec.elasticData resumes the data for torch's DistributedSampler",
    "resourceLimits": "a namespace's ResourceQuota limits what a job may use",
    "envs": "set them in the env of the containers",
}
TAKEN = ("replicaSpecs", "distributionStrategy", "suspend")
ROLE_NOT_NEEDED = {
    "autoScale": "set spec.scaling.policy: throughput for a job that finds its own size",
    "restartTimeout": "there is no fixed time to wait for a pod",
    "priority": "set priorityClassName in the template",
}
ROLE_TAKEN = ("replicas", "minReplicas", "maxReplicas", "restartCount", "template")
ENTRIES = "dlrover.trainer.entry"
"""Modules that run a trainer of DLRover, which needs DLRover's master."""


def converted(spec: Document) -> tuple[Document, list[str]]:
    roles = mapping(spec.get("replicaSpecs"))
    if not roles:
        raise ValueError("spec.replicaSpecs: Required value")
    notes = left_out(spec, TAKEN, NOT_NEEDED, "spec")
    strategy = spec.get("distributionStrategy") or ALLREDUCE
    if strategy not in (ALLREDUCE, PARAMETER_SERVERS):
        raise ValueError(
            f'spec.distributionStrategy: Unsupported value: "{strategy}": supported values: "{ALLREDUCE}", '
            f'"{PARAMETER_SERVERS}"'
        )
    made: Document = {"replicaSpecs": {}}
    roles = filled(roles, "spec.replicaSpecs", notes, "worker")
    for name, role in roles.items():
        if str(name).lower() == "dlrover-master":
            notes.append(f"spec.replicaSpecs.{name}: not converted: one Deployment is the master of all jobs.")
            continue
        given, found = _role(str(name).lower(), mapping(role), f"spec.replicaSpecs.{name}", notes)
        made["replicaSpecs"][str(name).lower()] = given
        made |= found.spec
        notes += found.notes
    if spec.get("suspend"):
        made["suspend"] = True
    return made, notes


def _role(name: str, role: Document, path: str, notes: list[str]) -> tuple[Document, Found]:
    made: Document = {field: role[field] for field in ("replicas", "minReplicas", "maxReplicas") if role.get(field)}
    if role.get("restartCount") is not None:
        made["restartLimit"] = role["restartCount"]
    notes += left_out(role, ROLE_TAKEN, ROLE_NOT_NEEDED, path)
    template = with_trainer(deepcopy(mapping(role.get("template"))), "main")
    pod, found = template.setdefault("spec", {}), Found()
    if pod.get("restartPolicy") == "Always":
        pod["restartPolicy"] = "Never"
        notes.append(
            f"{path}.template.spec.restartPolicy: Never instead of Always, which would restart pods that succeeded."
        )
    for number, container in enumerate(entries(pod.get("containers"))):
        at = f"{path}.template.spec.containers[{number}]"
        changed, in_it = launchers.rewritten(mapping(container), at)
        pod["containers"][number] = changed
        found = in_it if in_it.is_there else found
        notes += variables.unset(changed, at, variables.OF_DLROVER)
        if ENTRIES in str([changed.get("command"), changed.get("args")]):
            notes.append(f"{at}: {ENTRIES} needs DLRover's master, which does not exist here: start the script itself.")
    if found.sizes is not None:
        _sizes(made, found.sizes, path, notes)
    return {**made, "template": template}, found


def _sizes(made: Document, sizes: tuple[str, str], path: str, notes: list[str]) -> None:
    """Set the replicas by --nnodes MIN:MAX; $WORKER_NUM stands for the number of replicas."""
    replicas = whole(made.get("replicas")) or 1
    for field, text in zip(("minReplicas", "maxReplicas"), sizes, strict=True):
        value: Any = (
            int(text) if text.isdigit() else replicas if text.strip("${}") in ("WORKER_NUM", "NODE_NUM") else None
        )
        if value is None:
            notes.append(
                f"{path}.{field}: {replicas}, because --nnodes has {text}, whose value is known only in the running "
                f"pod."
            )
        made[field] = replicas if value is None else value
    made["replicas"] = min(max(replicas, made["minReplicas"]), made["maxReplicas"])
    if made["replicas"] != replicas:
        notes.append(f"{path}.replicas: {made['replicas']} instead of {replicas}, because of --nnodes.")
