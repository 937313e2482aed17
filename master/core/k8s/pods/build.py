"""A member's pod, built from the template of its role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

from outrider.master.core import quantities
from outrider.master.core.actions import CreatePod
from outrider.master.core.faults import restart_policy
from outrider.master.core.k8s.owners.references import owned_by
from outrider.master.core.k8s.pods import armed_faults, containers, ps_resources
from outrider.master.core.k8s.pods.addresses import MASTER_PORT, has_addresses
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values import atomic_save
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.identity import key_of, name_of
from outrider.master.core.k8s.values.names import (
    ATOMIC_SAVE,
    CHECKPOINT_MEMORY,
    CHECKPOINT_PATH,
    CONTAINER,
    ID,
    INJECT,
    JOB,
    MAX_RESTARTS,
    MEMBER,
    MIGRATION_DIR,
    NPROC,
    PER_RANK,
    PYTHONPATH,
    RANK_INDEX,
    RELAUNCHES,
    RESOURCES,
    ROLE,
    SAVE_SIGNAL,
    SCRIPT,
    SERVES,
    Document,
)
from outrider.master.core.k8s.values.replica_specs import has_master, members, restart_policy_of, roles_of, sizes
from outrider.master.core.spec import MASTER
from outrider.wire.ids import MemberId

HANDED_ON = (SCRIPT, PYTHONPATH, PER_RANK, MAX_RESTARTS, CONTAINER, MIGRATION_DIR, CHECKPOINT_MEMORY, CHECKPOINT_PATH,
             ATOMIC_SAVE)  # fmt: skip
"""Annotations of an ElasticJob that its pods inherit, unless the template sets them."""


def pod_of(job: Document, action: CreatePod) -> Document:
    """A new pod for this member, not yet injected."""
    role = roles_of(job)[action.role]
    template = mapping(role.get("template"))
    metadata, spec = deepcopy(mapping(template.get("metadata"))), deepcopy(mapping(template.get("spec")))
    spec["restartPolicy"] = _restart_policy(role)
    variables = _variables(action, action.wanted or sizes(role)[2]) | _of_a_pytorchjob(job, action)
    for container in spec["containers"]:
        container["env"] = _with_variables(container.get("env") or [], variables)
    if atomic := atomic_save.of_field(mapping(job["spec"].get("recovery")).get("atomicSave")):
        for container in spec["containers"]:
            container["env"] = _with_variables(container["env"], {atomic_save.VARIABLE: atomic})
    if action.avoid:
        _keep_off(spec, action.avoid)
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(job, action.member),
            "namespace": key_of(job).partition("/")[0],
            "labels": {**mapping(metadata.get("labels")), **_labels(job, action)},
            "annotations": {**handed_on(job), **mapping(metadata.get("annotations"))},
            "ownerReferences": [owned_by(job)],
            **({"finalizers": metadata["finalizers"]} if metadata.get("finalizers") else {}),
        },
        "spec": spec,
    }
    if action.resources and action.place is not None:
        ps_resources.applied(pod, job, action.place)
        pod["metadata"]["annotations"][RESOURCES] = action.resources
    pod = armed_faults.with_armed(pod, job, action.member)
    return with_memory(pod, action.memory_limit) if action.memory_limit else pod


def _labels(job: Document, action: CreatePod) -> dict[str, str]:
    labels = {
        JOB: job["metadata"]["name"],
        ROLE: str(action.role),
        MEMBER: str(action.member),
        ID: _id_of(action.member),
        RELAUNCHES: str(action.relaunches),
        INJECT: "true",
    }
    if has_addresses(job):
        labels[SERVES] = "true"
    return labels if action.rank_index is None else labels | {RANK_INDEX: str(action.rank_index)}


def _id_of(member: MemberId) -> str:
    return member.rpartition("-")[2]


def _restart_policy(role: Document) -> str:
    """The pod's restartPolicy: the role's takes precedence. It never restarts a trainer that has succeeded."""
    policy = restart_policy_of(role)
    own = {restart_policy.ALWAYS: "OnFailure", restart_policy.EXIT_CODE: "Never"}.get(policy, policy)
    return own or str(mapping(mapping(role.get("template")).get("spec")).get("restartPolicy") or "Never")


def handed_on(job: Document) -> dict[str, str]:
    """Annotations that the pods inherit from the job's annotations and fields."""
    notes = mapping(mapping(job.get("metadata")).get("annotations"))
    kept = {note: str(notes[note]) for note in HANDED_ON if note in notes}
    fields = (
        (NPROC, "nprocPerNode"),
        (MIGRATION_DIR, "migrationDir"),
        (CHECKPOINT_MEMORY, "checkpointMemory"),
        (CHECKPOINT_PATH, "checkpointPath"),
        (SAVE_SIGNAL, "saveSignal"),
    )
    spec = mapping(job.get("spec"))
    return kept | {note: str(spec[field]) for note, field in fields if spec.get(field) is not None}


def _variables(action: CreatePod, size: int) -> dict[str, str]:
    """Variables of every container. A spare has no WORKER_RANK, because it gets its rank after its start."""
    variables = {"WORKER_TYPE": str(action.role), "WORKER_ID": _id_of(action.member), "WORKER_NUM": str(size)}
    return variables if action.rank_index is None else variables | {"WORKER_RANK": str(action.rank_index)}


def _of_a_pytorchjob(job: Document, action: CreatePod) -> dict[str, str]:
    """Variables as in a PyTorchJob, if the job has a master: a shell script may read them before torchrun starts
    (`set -u`, `--nnodes=$WORLD_SIZE`). The ranks get their own values."""
    if not has_master(job) or action.rank_index is None:
        return {}
    return {
        "RANK": str(action.rank_index),
        "WORLD_SIZE": str(action.wanted or members(job)[2]),
        "MASTER_ADDR": f"{job['metadata']['name']}-{MASTER}-0",
        "MASTER_PORT": str(MASTER_PORT),
    }


def _with_variables(env: Sequence[Document], variables: Mapping[str, str]) -> list[Document]:
    """The variables with ours first, so the user's may refer to $(WORKER_ID); the user's values stay."""
    own = {entry.get("name") for entry in env}
    return [*({"name": name, "value": value} for name, value in variables.items() if name not in own), *env]


def _keep_off(spec: Document, nodes: Sequence[str]) -> None:
    """Excludes nodes by name, because the host name label may differ.

    The API server accepts one name per requirement. A pod fits a node if any term matches, so each term must exclude
    the nodes.
    """
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(set(nodes))]
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, "matchFields": [*(term.get("matchFields") or ()), *fields]}
                                     for term in terms]  # fmt: skip


def with_memory(pod: Document, limit: int) -> Document:
    """A copy whose trainer's container may use at least this many bytes.

    Its request grows in proportion, so the scheduler finds a node with enough memory. A limit of the whole pod grows
    with the container's, or alone if it is the only one.
    """
    pod = deepcopy(pod)
    name = trainer_name(pod)
    found = next((each for each in pod["spec"]["containers"] if each.get("name") == name), None)
    own, of_pod = containers.most_of(found or {}), containers.most_of(pod["spec"])
    if found is not None and (own or not of_pod):
        _raise_memory(found, own, limit)
        limit = of_pod + max(limit - own, 0)
    if of_pod:
        _raise_memory(pod["spec"], of_pod, limit)
    return pod


def _raise_memory(holder: Document, had: int, limit: int) -> None:
    resources = holder["resources"] = mapping(holder.get("resources"))
    if had >= limit:
        return
    resources["limits"] = mapping(resources.get("limits")) | {"memory": quantities.written(limit)}
    requested = quantities.parsed(mapping(resources.get("requests")).get("memory")) or 0
    if requested and had:
        resources["requests"]["memory"] = quantities.written(min(limit, requested * limit // had))
