"""DLRover's ElasticJob (elastic.iml.github.io): its commands say with dlrover-run what is in the spec here."""

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
    "optimizeMode": "nothing here asks a Brain service; spec.scaling finds a size by what steps show",
    "brainService": "there is no Brain service",
    "enableElasticScheduling": "a job is elastic where minReplicas is less than maxReplicas",
    "enableDynamicSharding": "--elastic-data (spec.elasticData) goes on in the data for torch's DistributedSampler",
    "resourceLimits": "a namespace's ResourceQuota limits what a job may use",
    "envs": "put them into the containers' env",
}
TAKEN = ("replicaSpecs", "distributionStrategy", "suspend")
ROLE_NOT_NEEDED = {
    "autoScale": "spec.scaling.policy: throughput has the job find its own size",
    "restartTimeout": "no pod is waited for by a fixed time",
    "priority": "set priorityClassName in the template",
}
ROLE_TAKEN = ("replicas", "minReplicas", "maxReplicas", "restartCount", "template")
ENTRIES = "dlrover.trainer.entry"
"""Modules that run a trainer of DLRover's own, which asks DLRover's master."""


def converted(spec: Document) -> tuple[Document, list[str]]:
    roles = mapping(spec.get("replicaSpecs"))
    if not roles:
        raise ValueError("spec.replicaSpecs: it is missing")
    notes = left_out(spec, TAKEN, NOT_NEEDED, "spec")
    strategy = spec.get("distributionStrategy") or ALLREDUCE
    if strategy not in (ALLREDUCE, PARAMETER_SERVERS):
        raise ValueError(
            f"spec.distributionStrategy: {strategy} is not known; there are {ALLREDUCE}, {PARAMETER_SERVERS}"
        )
    made: Document = {"replicaSpecs": {}}
    roles = filled(roles, "spec.replicaSpecs", notes, "worker")
    for name, role in roles.items():
        if str(name).lower() == "dlrover-master":
            notes.append(f"spec.replicaSpecs.{name}: left out: the master is one Deployment for all jobs.")
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
            f"{path}.template.spec.restartPolicy: Never instead of Always, which would start what has succeeded."
        )
    for number, container in enumerate(entries(pod.get("containers"))):
        at = f"{path}.template.spec.containers[{number}]"
        changed, in_it = launchers.rewritten(mapping(container), at)
        pod["containers"][number] = changed
        found = in_it if in_it.is_there else found
        notes += variables.unset(changed, at, variables.OF_DLROVER)
        if ENTRIES in str([changed.get("command"), changed.get("args")]):
            notes.append(f"{at}: {ENTRIES} asks DLRover's master, which is not there: start the script itself.")
    if found.sizes is not None:
        _sizes(made, found.sizes, path, notes)
    return {**made, "template": template}, found


def _sizes(made: Document, sizes: tuple[str, str], path: str, notes: list[str]) -> None:
    """--nnodes MIN:MAX; $WORKER_NUM is the number of replicas."""
    replicas = whole(made.get("replicas")) or 1
    for field, text in zip(("minReplicas", "maxReplicas"), sizes, strict=True):
        value: Any = (
            int(text) if text.isdigit() else replicas if text.strip("${}") in ("WORKER_NUM", "NODE_NUM") else None
        )
        if value is None:
            notes.append(
                f"{path}.{field}: --nnodes says {text}, which is known only when the pod runs: it is {replicas}."
            )
        made[field] = replicas if value is None else value
    made["replicas"] = min(max(replicas, made["minReplicas"]), made["maxReplicas"])
    if made["replicas"] != replicas:
        notes.append(f"{path}.replicas: {made['replicas']} instead of {replicas}, because of --nnodes.")
