"""The core's events about a pod, derived from the pod's document.

Only the newest document counts: no clock and no earlier document, so equal documents give equal events. A pod that is
being deleted is always `terminating`, so a requested end is never a failure. Otherwise the trainer's container decides:
its end is the pod's end, whether or not the sidecar still runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from outrider.master.core.events import PodGone, PodSeen, PodsListed
from outrider.master.core.k8s.owners.references import controller_of
from outrider.master.core.k8s.pods import containers
from outrider.master.core.k8s.pods.containers import end_of
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values import bounds
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.identity import member_of
from outrider.master.core.k8s.values.names import (
    ALONE_AFTER,
    INJECTED,
    MEMBER,
    RANK_INDEX,
    RESOURCES,
    ROLE,
    SIDECAR_CONTAINER,
    Document,
)
from outrider.master.core.spec import WORKER
from outrider.master.core.text import brief
from outrider.wire.ids import PodUid, RankIndex, Role

TAKEN = ("Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated")
"""Values of status.reason for a pod that has lost its node. Evicted counts only if the node was short of resources."""
JOB_TRACKING = "batch.kubernetes.io/job-tracking"
"""Finalizer of every pod of a Job, from Kubernetes 1.26 on; it blocks nothing."""
NOT_ITS_FAULT = (
    "PreemptionByScheduler",
    "DeletionByTaintManager",
    "EvictionByEvictionAPI",
    "DeletionByPodGC",
    "TerminationByKubelet",
)
"""Reasons of the condition DisruptionTarget (Kubernetes 1.25 and later) that are not the pod's fault."""


def seen(pod: Document, public_key: str = "") -> PodSeen | None:
    """The core's event for a pod; None if it belongs to no job. `public_key`: the master's, to find a key mismatch."""
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
        has_controller=MEMBER in labels or controller_of(metadata) is not None,
        has_sidecar=containers.has_sidecar(pod),
        alone_after=_alone_after(metadata),
    )


def kept(pod: Document) -> Document | None:
    """The part of a pod that the watch keeps; None if the pod is too large, and so was not injected."""
    return None if bounds.too_large(pod) else bounds.kept(pod)


def _alone_after(metadata: Document) -> float:
    """Seconds in the annotation that the webhook has written; 0 if there is none."""
    text = str(mapping(metadata.get("annotations")).get(ALONE_AFTER, ""))
    return float(text) if len(text) < 12 and text.replace(".", "", 1).isdecimal() else 0.0


def _has_ended(pod: Document) -> bool:
    """Whether all containers have ended and no finalizer keeps the pod.

    A slow kubelet may leave such a pod for minutes (seen with 1.20).
    """
    found = list(containers.statuses(pod))
    return bool(found) and all("terminated" in mapping(each.get("state")) for each in found) and not (
        pod["metadata"].get("finalizers"))  # fmt: skip


def listed(pods: Iterable[Document], public_key: str = "") -> PodsListed:
    """The core's event for a list of pods. Pods in which nothing runs any more count as gone."""
    shown = [(pod, pod_seen) for pod in pods if (pod_seen := seen(pod, public_key)) is not None]
    left = [gone(pod, pod_seen, is_deleted=False) for pod, pod_seen in shown if is_gone(pod)]
    return PodsListed(
        tuple(pod_seen for pod, pod_seen in shown if not is_gone(pod)), tuple(pod for pod in left if pod.remains)
    )


def gone(pod: Document, seen: PodSeen, *, is_deleted: bool) -> PodGone:
    """The core's event for a pod that was deleted or `is_gone`."""
    remains = not is_deleted and not pod["metadata"].get("deletionTimestamp")
    reason = seen.reason or "its pod was deleted"
    return PodGone(seen.member, seen.uid, reason, seen.exit_code, remains, seen.rank_index if remains else None)


def _grace(metadata: Document) -> float | None:
    """Grace period of a deletion in seconds, which `kubectl delete` may set; None if the pod is not being deleted."""
    seconds = metadata.get("deletionGracePeriodSeconds")
    is_deleted = bool(metadata.get("deletionTimestamp"))
    return float(seconds) if is_deleted and isinstance(seconds, int | float) else None


def _ends_at(metadata: Document) -> float | None:
    """Unix time of the end of the grace period (deletionTimestamp); None if the pod is not being deleted."""
    try:
        return datetime.fromisoformat(str(metadata.get("deletionTimestamp"))).timestamp()
    except ValueError:
        return None


def _standing(pod: Document) -> tuple[str, str, int | None]:
    """Phase, reason and exit code, as defined in docs/contracts.md and `PodSeen`."""
    status, phase = mapping(pod.get("status")), mapping(pod.get("status")).get("phase") or "Pending"
    trainer = containers.status_of(pod, trainer_name(pod))
    end = end_of(trainer)
    if pod["metadata"].get("deletionTimestamp"):
        return "terminating", _why_deleted(pod), None if end is None else end.code
    if is_taken(pod) or (phase == "Failed" and status.get("reason")):
        return (
            ("failed" if phase == "Failed" else "running"),
            _reason_and_message(status),
            None if end is None else end.code,
        )
    if end is not None and (phase in ("Succeeded", "Failed") or not _starts_again(pod, trainer, end)):
        again = "" if not containers.loops(trainer) else f" ({_times(trainer)})"
        return ("succeeded" if end.code == 0 else "failed"), f"the trainer's container {end.sentence}{again}", end.code
    if phase in ("Succeeded", "Failed"):
        return _without_trainer(pod, phase)
    if phase == "Pending":
        return "pending", _has_no_room(pod) or _cannot_start(pod), None
    return "running", _what_is_down(pod, trainer), None


def _starts_again(pod: Document, trainer: Document, end: containers.End) -> bool:
    """Whether the kubelet starts the trainer again.

    A pod of ours in a crash loop counts as failed and is replaced, within its restart limit. A pod of another owner
    counts as running, and its owner decides.
    """
    is_ours = MEMBER in pod["metadata"]["labels"]
    is_hopeless = is_ours and containers.loops(trainer)
    return containers.is_restarted(pod, trainer["name"], end.code) and not is_hopeless


def _without_trainer(pod: Document, phase: str) -> tuple[str, str, int | None]:
    """The end of a pod whose trainer never ran: a container failed, or the pod has only a reason.

    Our containers end with the pod, so the user's containers are checked first.
    """
    ends = [(status, end) for status in containers.statuses(pod) if (end := end_of(status)) is not None and end.code]
    ends.sort(key=lambda each: each[0]["name"] in containers.OURS)
    for status, end in ends if phase == "Failed" else []:
        what = "init container" if containers.is_init(pod, status["name"]) else "container"
        return "failed", f"the {what} {status['name']} {end.sentence}", end.code
    return phase.lower(), _reason_and_message(mapping(pod.get("status"))), 0 if phase == "Succeeded" else None


def _cannot_start(pod: Document) -> str:
    """Why the first container that cannot start does not start; empty if all can."""
    for status in containers.statuses(pod):
        why, end = containers.cannot_start(status), end_of(status)
        if why:
            return why
        if end is not None and end.code != 0:
            return f"the container {status['name']} {end.with_code} ({_times(status)})"
    return ""


def _what_is_down(pod: Document, trainer: Document) -> str:
    """Which container of a running pod is down; empty if none is.

    `Restarted…` shows that the kubelet works: it has seen the end of the container and starts it again.
    """
    sidecar = containers.status_of(pod, SIDECAR_CONTAINER)
    for status, what in ((trainer, "Trainer"), (sidecar, "Sidecar")):
        end = end_of(status)
        if why := containers.cannot_start(status):
            return why
        if end is None:
            continue
        if containers.is_restarted(pod, status["name"], end.code):
            return f"Restarted{what}: its container {end.with_code} ({_times(status)})"
        return f"{what}Exited: its container {end.with_code} and is not restarted"
    if not sidecar and mapping(pod["metadata"].get("annotations")).get(INJECTED) is None:
        return "NotInjected: the pod has no sidecar, because the webhook was down when it was created"
    return ""


def _times(status: Document) -> str:
    count = containers.ends(status)
    return "the first time" if count == 1 else f"time {count}"


def _has_no_room(pod: Document) -> str | None:
    """The scheduler's reason for finding no node; None if it has found one or has not tried yet."""
    found = _condition(pod, "PodScheduled")
    if found.get("status") != "False" or found.get("reason") not in ("Unschedulable", "SchedulingGated"):
        return None
    return brief(found.get("message")) or str(found["reason"])


def _why_deleted(pod: Document) -> str:
    """Why the pod is being deleted, with the grace period, which `kubectl delete` may set lower than the pod's own."""
    target, status = _condition(pod, "DisruptionTarget"), mapping(pod.get("status"))
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    deleted = "it was deleted" if grace is None else f"it was deleted with a grace period of {grace} s"
    if target.get("status") == "True":
        return f"{deleted}: {target.get('reason') or 'DisruptionTarget'}: {brief(target.get('message'))}".rstrip(": ")
    if status.get("reason"):
        return f"{deleted}: {_reason_and_message(status)}"
    finalizers = [each for each in pod["metadata"].get("finalizers") or () if each != JOB_TRACKING]
    return f"{deleted}; finalizers keep it: {', '.join(finalizers)}" if finalizers else deleted


def _reason_and_message(status: Document) -> str:
    """Reason and message of the kubelet or a controller."""
    return ": ".join(word for word in (status.get("reason") or "", brief(status.get("message"))) if word)


def _condition(pod: Document, kind: str) -> Document:
    conditions = mapping(pod.get("status")).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})


def is_taken(pod: Document) -> bool:
    """Whether the pod lost its node: a shortage, shutdown or loss of the node, a preemption, or a drain.

    Its replacement is free, unlike that of a pod that exceeded a limit of its own.
    """
    status = mapping(pod.get("status"))
    if status.get("reason") == "Evicted":
        return str(status.get("message") or "").startswith("The node ")
    target = _condition(pod, "DisruptionTarget")
    is_target = target.get("status") == "True" and target.get("reason") in NOT_ITS_FAULT
    return status.get("reason") in TAKEN or is_target


def is_gone(pod: Document) -> bool:
    """Whether nothing of the pod runs any more without a failure of its own.

    It lost its node, or it was deleted and a finalizer keeps the object. A pod in its grace period still trains.
    """
    return is_over(pod) and (is_taken(pod) or bool(pod["metadata"].get("deletionTimestamp")))


def is_over(pod: Document) -> bool:
    """Whether nothing of the pod runs or will run: only then may the pod of an ended member stay.

    Otherwise its sidecar still runs, or the kubelet will restart its trainer, and the pod must be deleted to free its
    resources.
    """
    return mapping(pod.get("status")).get("phase") in ("Succeeded", "Failed")
