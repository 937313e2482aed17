"""A member's pod: made from the template of its role, and read back as what the core is told of it.

What the core is told depends on the newest document alone, and the same document always says the same: no clock, and
nothing that was seen before. A pod that is being deleted is `terminating` whatever else is true of it, so that an end
that somebody asked for is never a failure. Otherwise the trainer's container decides: its end is the pod's end, whether
or not the sidecar still runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime

from outrider.master.core import quantities
from outrider.master.core.actions import CreatePod
from outrider.master.core.events import PodGone, PodSeen, PodsListed
from outrider.master.core.faults import restart_policy
from outrider.master.core.k8s.owners import references as owners_references
from outrider.master.core.k8s.pods import armed_faults, containers, ps_resources
from outrider.master.core.k8s.pods.containers import end_of
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values import atomic_save, bounds
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.identity import key_of, member_of, name_of
from outrider.master.core.k8s.values.names import (
    ALONE_AFTER,
    ATOMIC_SAVE,
    CHECKPOINT_MEMORY,
    CHECKPOINT_PATH,
    CONTAINER,
    GROUP_VERSION,
    ID,
    INJECT,
    INJECTED,
    JOB,
    KIND,
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
    SIDECAR_CONTAINER,
    Document,
)
from outrider.master.core.k8s.values.replica_specs import has_master, members, restart_policy_of, roles_of, sizes
from outrider.master.core.spec import MASTER, WORKER
from outrider.master.core.text import brief
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role

PS, PS_PORT = "ps", 2222
PORT = 3333
MASTER_PORT = 23456
"""Of a PyTorchJob's master. The ranks meet elsewhere, at an address of each generation's."""
HANDED_ON = (SCRIPT, PYTHONPATH, PER_RANK, MAX_RESTARTS, CONTAINER, MIGRATION_DIR, CHECKPOINT_MEMORY, CHECKPOINT_PATH,
             ATOMIC_SAVE)  # fmt: skip
"""Annotations of an ElasticJob that hold for its pods, where the template does not say otherwise."""
TAKEN = ("Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated")
"""Words of status.reason for a pod whose machine was taken from it. Evicted is one only where the node was short."""
JOB_TRACKING = "batch.kubernetes.io/job-tracking"
"""A finalizer of every pod of a Job, from Kubernetes 1.26 on: it holds nothing up."""
NOT_ITS_FAULT = (
    "PreemptionByScheduler",
    "DeletionByTaintManager",
    "EvictionByEvictionAPI",
    "DeletionByPodGC",
    "TerminationByKubelet",
)
"""Reasons of the condition DisruptionTarget (Kubernetes from 1.25 on)."""


def kept(pod: Document) -> Document | None:
    """What is kept of a pod that is watched; None of one that is so large that it was not injected."""
    return None if bounds.too_large(pod) else bounds.kept(pod)


def owned_by(job: Document) -> Document:
    """The owner reference of everything that is made for a job: it goes when the job is deleted."""
    metadata = job["metadata"]
    return {
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
        "controller": True,
        "blockOwnerDeletion": True,
    }


# -- making -------------------------------------------------------------------------------------------------------
def pod_of(job: Document, action: CreatePod) -> Document:
    """A new pod for this member, not yet injected."""
    role = roles_of(job)[action.role]
    template = mapping(role.get("template"))
    metadata, spec = deepcopy(mapping(template.get("metadata"))), deepcopy(mapping(template.get("spec")))
    spec["restartPolicy"] = _restart_policy(role)
    variables = _variables(action, action.wanted or sizes(role)[2]) | _of_a_pytorchjob(job, action)
    for container in spec["containers"]:
        container["env"] = _with_variables(container.get("env") or [], variables)
    if told := atomic_save.of_field(mapping(job["spec"].get("recovery")).get("atomicSave")):
        for container in spec["containers"]:
            container["env"] = _with_variables(container["env"], {atomic_save.VARIABLE: told})
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
    """The role's own is above the template's. A trainer that has succeeded is not started again."""
    policy = restart_policy_of(role)
    own = {restart_policy.ALWAYS: "OnFailure", restart_policy.EXIT_CODE: "Never"}.get(policy, policy)
    return own or str(mapping(mapping(role.get("template")).get("spec")).get("restartPolicy") or "Never")


def handed_on(job: Document) -> dict[str, str]:
    """Annotations of its pods that the job itself has, or means."""
    notes = mapping(mapping(job.get("metadata")).get("annotations"))
    kept = {note: str(notes[note]) for note in HANDED_ON if note in notes}
    said = (
        (NPROC, "nprocPerNode"),
        (MIGRATION_DIR, "migrationDir"),
        (CHECKPOINT_MEMORY, "checkpointMemory"),
        (CHECKPOINT_PATH, "checkpointPath"),
        (SAVE_SIGNAL, "saveSignal"),
    )
    spec = mapping(job.get("spec"))
    return kept | {note: str(spec[field]) for note, field in said if spec.get(field) is not None}


def _variables(action: CreatePod, wanted: int) -> dict[str, str]:
    """A spare has no rank, and cannot be told one when it gets it."""
    variables = {"WORKER_TYPE": str(action.role), "WORKER_ID": _id_of(action.member), "WORKER_NUM": str(wanted)}
    return variables if action.rank_index is None else variables | {"WORKER_RANK": str(action.rank_index)}


def _of_a_pytorchjob(job: Document, action: CreatePod) -> dict[str, str]:
    """What the pods of one with a master are told: a shell script reads it before torchrun does (`set -u`,
    `--nnodes=$WORLD_SIZE`). The ranks are told their own."""
    if not has_master(job) or action.rank_index is None:
        return {}
    return {
        "RANK": str(action.rank_index),
        "WORLD_SIZE": str(action.wanted or members(job)[2]),
        "MASTER_ADDR": f"{job['metadata']['name']}-{MASTER}-0",
        "MASTER_PORT": str(MASTER_PORT),
    }


def _with_variables(env: Sequence[Document], variables: Mapping[str, str]) -> list[Document]:
    """Ours come first, so that the user's own may be written with $(WORKER_ID); what the user has set stays."""
    own = {entry.get("name") for entry in env}
    return [*({"name": name, "value": value} for name, value in variables.items() if name not in own), *env]


def _keep_off(spec: Document, nodes: Sequence[str]) -> None:
    """By the nodes' names: their host name label may be another. The API server takes one name a requirement, and a
    pod fits where any one term does, so that each term must say it."""
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(set(nodes))]
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, "matchFields": [*(term.get("matchFields") or ()), *fields]}
                                     for term in terms]  # fmt: skip


def with_memory(pod: Document, limit: int) -> Document:
    """A copy whose trainer's container may use so many bytes at the least. What it asks for grows by as much, so that
    the scheduler finds it a node where it has them. A limit of the whole pod grows with the container's, or alone where
    it is the only one."""
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
    asked = quantities.parsed(mapping(resources.get("requests")).get("memory")) or 0
    if asked and had:
        resources["requests"]["memory"] = quantities.written(min(limit, asked * limit // had))


def has_addresses(job: Document) -> bool:
    """Members are reached at Services: it has parameter servers, or a master."""
    return (PS in roles_of(job) or has_master(job)) and not job["spec"].get("adopts")


def port_of(role: Role) -> int:
    """On which its members are reached, where they have an address."""
    return {PS: PS_PORT, MASTER: MASTER_PORT}.get(role, PORT)


def service_of(job: Document, role: Role, rank_index: RankIndex) -> Document:
    """One address for a rank index, whichever pod holds it: a replacement is reached where the lost one was, also by
    who has looked the name up before (docs/adr/0024). Kubernetes 1.20 would leave one there that has failed and is
    kept, so that each pod says by a label that it serves, until it has failed."""
    labels = {JOB: job["metadata"]["name"], ROLE: str(role), RANK_INDEX: str(rank_index)}
    selector = labels | {SERVES: "true"}
    if role == MASTER:  # a worker that was a spare may hold its rank index
        del selector[ROLE]
    port = port_of(role)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"{job['metadata']['name']}-{role}-{rank_index}",
            "namespace": key_of(job).partition("/")[0],
            "labels": labels,
            "ownerReferences": [owned_by(job)],
        },
        "spec": {
            "publishNotReadyAddresses": True,
            "selector": selector,
            "ports": [{"name": str(role), "port": port, "targetPort": port}],
        },
    }


# -- reading ------------------------------------------------------------------------------------------------------
def seen(pod: Document, public_key: str = "") -> PodSeen | None:
    """What the core is told of it; None for a pod of no job. `public_key`: the master's, where that is asked."""
    member = member_of(pod)
    if member is None:
        return None
    metadata = pod["metadata"]
    labels = metadata["labels"]
    rank_index = labels.get(RANK_INDEX) or ""
    phase, reason, code = _standing(pod)
    return PodSeen(
        member,
        PodUid(metadata.get("uid") or ""),
        Role(labels.get(ROLE) or WORKER),
        RankIndex(int(rank_index)) if rank_index.isdigit() else None,
        phase,
        reason,
        phase == "pending" and _has_no_room(pod) is not None,
        code,
        mapping(pod.get("spec")).get("nodeName") or "",
        cannot_start=phase in ("pending", "running") and any(map(containers.cannot_start, containers.statuses(pod))),
        memory_limit=containers.memory_limit(pod, trainer_name(pod)),
        out_of_memory=containers.is_out_of_memory(containers.status_of(pod, trainer_name(pod))),
        lingers=phase == "failed" and not is_over(pod),
        sidecar_ended=containers.end_for_good(pod, SIDECAR_CONTAINER) if phase == "running" else "",
        has_ended=phase == "terminating" and _has_ended(pod),
        has_another_key=bool(public_key) and containers.master_key(pod) not in ("", public_key),
        grace=_grace(metadata),
        ends_at=_ends_at(metadata),
        resources=(metadata.get("annotations") or {}).get(RESOURCES) or "",
        has_controller=MEMBER in labels or owners_references.controller_of(metadata) is not None,
        has_sidecar=containers.has_sidecar(pod),
        alone_after=_alone_after(metadata),
    )


def _alone_after(metadata: Document) -> float:
    """As the webhook has written it."""
    text = str(mapping(metadata.get("annotations")).get(ALONE_AFTER, ""))
    return float(text) if len(text) < 12 and text.replace(".", "", 1).isdecimal() else 0.0


def _has_ended(pod: Document) -> bool:
    """A kubelet that is behind may leave such a pod there for minutes (seen with 1.20)."""
    told = list(containers.statuses(pod))
    return bool(told) and all("terminated" in mapping(each.get("state")) for each in told) and not (
        pod["metadata"].get("finalizers"))  # fmt: skip


def listed(pods: Iterable[Document], public_key: str = "") -> PodsListed:
    """Those of which nothing runs any more are gone, whatever is left to be read of them."""
    shown = [(pod, pod_seen) for pod in pods if (pod_seen := seen(pod, public_key)) is not None]
    left = [gone(pod, pod_seen, is_deleted=False) for pod, pod_seen in shown if is_gone(pod)]
    return PodsListed(
        tuple(pod_seen for pod, pod_seen in shown if not is_gone(pod)), tuple(pod for pod in left if pod.remains)
    )


def gone(pod: Document, seen: PodSeen, *, is_deleted: bool) -> PodGone:
    """What the core is told of one that was deleted, or that `is_gone`."""
    remains = not is_deleted and not pod["metadata"].get("deletionTimestamp")
    reason = seen.reason or "its pod was deleted"
    return PodGone(seen.member, seen.uid, reason, seen.exit_code, remains, seen.rank_index if remains else None)


def _grace(metadata: Document) -> float | None:
    """As whoever deletes it gives it: `kubectl delete` may say less than the pod does."""
    seconds = metadata.get("deletionGracePeriodSeconds")
    is_deleted = bool(metadata.get("deletionTimestamp"))
    return float(seconds) if is_deleted and isinstance(seconds, int | float) else None


def _ends_at(metadata: Document) -> float | None:
    """A pod's deletionTimestamp is the moment at which its grace has run out."""
    try:
        return datetime.fromisoformat(str(metadata.get("deletionTimestamp"))).timestamp()
    except ValueError:
        return None


def _standing(pod: Document) -> tuple[str, str, int | None]:
    """Phase, reason and exit code, as docs/contracts.md and `PodSeen` mean them."""
    status, phase = mapping(pod.get("status")), mapping(pod.get("status")).get("phase") or "Pending"
    trainer = containers.status_of(pod, trainer_name(pod))
    end = end_of(trainer)
    if pod["metadata"].get("deletionTimestamp"):
        return "terminating", _why_deleted(pod), None if end is None else end.code
    if is_taken(pod) or (phase == "Failed" and status.get("reason")):
        return ("failed" if phase == "Failed" else "running"), _said(status), None if end is None else end.code
    if end is not None and (phase in ("Succeeded", "Failed") or not _starts_again(pod, trainer, end)):
        again = "" if not containers.loops(trainer) else f"; that was {_times(trainer)}"
        return ("succeeded" if end.code == 0 else "failed"), f"the trainer's container {end.sentence}{again}", end.code
    if phase in ("Succeeded", "Failed"):
        return _without_trainer(pod, phase)
    if phase == "Pending":
        return "pending", _has_no_room(pod) or _cannot_start(pod), None
    return "running", _what_is_down(pod, trainer), None


def _starts_again(pod: Document, trainer: Document, end: containers.End) -> bool:
    """A pod of ours that would do so for ever has failed: it is replaced, within the budget. Another owner's is left to
    it, for which the pod runs."""
    is_ours = MEMBER in pod["metadata"]["labels"]
    is_hopeless = is_ours and containers.loops(trainer)
    return containers.is_restarted(pod, trainer["name"], end.code) and not is_hopeless


def _without_trainer(pod: Document, phase: str) -> tuple[str, str, int | None]:
    """It is over before the trainer began: an init container failed, or nothing is said. Ours end with the pod, and are
    to blame where nobody else is."""
    ends = [(status, end) for status in containers.statuses(pod) if (end := end_of(status)) is not None and end.code]
    ends.sort(key=lambda each: each[0]["name"] in containers.OURS)
    for status, end in ends if phase == "Failed" else []:
        what = "init container" if containers.is_init(pod, status["name"]) else "container"
        return "failed", f"the {what} {status['name']} {end.sentence}", end.code
    return phase.lower(), _said(mapping(pod.get("status"))), 0 if phase == "Succeeded" else None


def _cannot_start(pod: Document) -> str:
    """The first container that holds it up; empty while everything goes its way."""
    for status in containers.statuses(pod):
        why, end = containers.cannot_start(status), end_of(status)
        if why:
            return why
        if end is not None and end.code != 0:
            return f"the container {status['name']} {end.with_code}; that was {_times(status)}"
    return ""


def _what_is_down(pod: Document, trainer: Document) -> str:
    """`Restarted…` is a sign of life of the pod: the kubelet has seen the container end, and starts it again."""
    sidecar = containers.status_of(pod, SIDECAR_CONTAINER)
    for status, what in ((trainer, "Trainer"), (sidecar, "Sidecar")):
        end = end_of(status)
        if why := containers.cannot_start(status):
            return why
        if end is None:
            continue
        if containers.is_restarted(pod, status["name"], end.code):
            return f"Restarted{what}: its container {end.with_code}; that was {_times(status)}"
        return f"{what}Ended: its container {end.with_code}, and is not started again"
    if not sidecar and mapping(pod["metadata"].get("annotations")).get(INJECTED) is None:
        return "NotInjected: the pod was made while no webhook was there, so that it has no sidecar"
    return ""


def _times(status: Document) -> str:
    count = containers.ends(status)
    return "the first time" if count == 1 else f"time {count}"


def _has_no_room(pod: Document) -> str | None:
    """Why the scheduler finds no node, in its words; None where it has found one, or has not looked yet."""
    found = _condition(pod, "PodScheduled")
    if found.get("status") != "False" or found.get("reason") not in ("Unschedulable", "SchedulingGated"):
        return None
    return brief(found.get("message")) or str(found["reason"])


def _why_deleted(pod: Document) -> str:
    """Who takes it, and with how much grace: its sidecar knows the pod's own, and `kubectl delete` may give less."""
    target, status = _condition(pod, "DisruptionTarget"), mapping(pod.get("status"))
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    deleted = "it was deleted" if grace is None else f"it was deleted with {grace} s of grace"
    if target.get("status") == "True":
        return f"{deleted}: {target.get('reason') or 'DisruptionTarget'}: {brief(target.get('message'))}".rstrip(": ")
    if status.get("reason"):
        return f"{deleted}: {_said(status)}"
    finalizers = [each for each in pod["metadata"].get("finalizers") or () if each != JOB_TRACKING]
    return f"{deleted}, and is held by {', '.join(finalizers)}" if finalizers else deleted


def _said(status: Document) -> str:
    """The kubelet's or a controller's own word for it, and sentence."""
    return ": ".join(word for word in (status.get("reason") or "", brief(status.get("message"))) if word)


def _condition(pod: Document, kind: str) -> Document:
    conditions = mapping(pod.get("status")).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})


def is_taken(pod: Document) -> bool:
    """Somebody took its machine: a node that is short, shuts down or is lost, a pod of higher priority, a drain. Its
    replacement should cost nothing, unlike that of a pod that broke a limit of its own."""
    status = mapping(pod.get("status"))
    if status.get("reason") == "Evicted":
        return str(status.get("message") or "").startswith("The node ")
    target = _condition(pod, "DisruptionTarget")
    is_target = target.get("status") == "True" and target.get("reason") in NOT_ITS_FAULT
    return status.get("reason") in TAKEN or is_target


def is_gone(pod: Document) -> bool:
    """Nothing of it runs any more, and that was no failure of its own: its machine was taken, or it was deleted and a
    finalizer keeps what is left. One that must go but has its grace still trains."""
    return is_over(pod) and (is_taken(pod) or bool(pod["metadata"].get("deletionTimestamp")))


def is_over(pod: Document) -> bool:
    """Nothing of it runs or will: only then may a member that has succeeded or failed be left as it is. Otherwise its
    sidecar runs on, or the kubelet will start its trainer again, and it must be deleted to free what it holds."""
    return mapping(pod.get("status")).get("phase") in ("Succeeded", "Failed")
