"""A pod as it is seen: read as what the core is told of it.

That depends on the newest document alone, and the same document always says the same: no clock, and nothing that was
seen before. A pod that is being deleted is `terminating` whatever else is true of it, so that an end that somebody
asked for is never a failure. Otherwise the trainer's container decides: its end is the pod's end, whether or not the
sidecar still runs.
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
        has_controller=MEMBER in labels or controller_of(metadata) is not None,
        has_sidecar=containers.has_sidecar(pod),
        alone_after=_alone_after(metadata),
    )


def kept(pod: Document) -> Document | None:
    """What is kept of a pod that is watched; None of one that is so large that it was not injected."""
    return None if bounds.too_large(pod) else bounds.kept(pod)


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
        return f"{what}Exited: its container {end.with_code}, and is not started again"
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
