"""The conditions in the status of an ElasticJob: status, reason, message and time of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.master.core.events import PodSeen
from outrider.master.core.generation.formation import WAITS
from outrider.master.core.k8s.elasticjob import run_policy
from outrider.master.core.k8s.pods import unknown_fields
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.modes import OBSERVED
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.phases import (
    FAILED,
    OVER,
    PENDING,
    RESTARTING,
    RUNNING,
    STOPPED,
    SUCCEEDED,
    SUSPENDED,
)
from outrider.master.core.k8s.values.replica_specs import has_master, members, roles_of, sizes
from outrider.master.core.membership.unreached import CHECK
from outrider.master.core.spec import MASTER, WORKER
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId

UNSUPERVISED = "unsupervised"
"""State of members whose pods belong to another installation (key mismatch)."""
GONE = ("failed", "terminating")
"""Phases of pods that are being replaced."""
MESSAGE = 1000
"""Maximum length of a message in characters."""
NAMED = 10
"""Maximum number of members that a message names."""


def conditions_of(
    job: Document,
    phase: str,
    message: str,
    document: Mapping[str, Any],
    known: Mapping[MemberId, PodSeen],
    now: str,
    problems: Sequence[str],
    unknown: Sequence[str],
) -> list[Document]:
    """All conditions of a job. A condition appears when it first holds; its time changes only with its status."""
    old = {c.get("type"): c for c in map(mapping, entries(mapping(job.get("status")).get("conditions")))}
    faults = document.get("faults") or ()
    why_restarting = faults[-1].get("kind") if faults else "Restarting"
    size = document.get("world") or 0
    running = (
        counted(size, "member") if _has_ps(job) else f"generation {document.get('generation')}, {counted(size, 'rank')}"
    )
    is_true = {
        RUNNING: (phase == RUNNING, "GenerationRunning", running),
        RESTARTING: (phase == RESTARTING, str(why_restarting), message),
        SUSPENDED: (phase == SUSPENDED, "SuspendRequested", message),
        SUCCEEDED: (phase == SUCCEEDED, "JobSucceeded", message),
        FAILED: (phase in (FAILED, STOPPED), _why_failed(job, phase, message), message),
    }
    conditions = [("Created", True, "JobCreated", ""), _scheduled(job, phase, document, known, old)]
    for kind, (holds, reason, text) in is_true.items():
        if holds or kind in old or kind == RUNNING:
            why_not = _why_not_running(phase, document, known) if kind == RUNNING else (f"Job{phase}", "")
            conditions.append((kind, holds, *((reason, text) if holds else why_not)))
    cut = mapping(document.get("network")).get("down") or ()
    if cut or "NetworkFault" in old:
        text = " ".join(str(each["reason"]) for each in cut)[:MESSAGE]
        conditions.append(("NetworkFault", bool(cut), "LinkDown" if cut else "LinksHealthy", text))
    if (in_place := mapping(document.get("non_atomic_saves"))) or "CheckpointsNotAtomic" in old:
        text = " ".join(f"{member}: {why}." for member, why in in_place.items())[:MESSAGE]
        reason = "InsufficientDiskSpace" if in_place else "SavesAtomic"
        conditions.append(("CheckpointsNotAtomic", bool(in_place), reason, text))
    unreachable = list(document.get("unreachable") or ())
    if unreachable or "MembersUnreachable" in old:
        conditions.append(("MembersUnreachable", bool(unreachable), *_why_unreachable(unreachable)))
    if problems or unknown or "Valid" in old:
        conditions.append(("Valid", not problems, *_why_valid(problems, unknown)))
    would = document.get("dry_run")
    if would is not None:
        text = " ".join(("The job is only observed; nothing is done.", *reversed(would)))
        conditions.append(("Supervised", False, OBSERVED, text[:MESSAGE]))
    elif "Supervised" in old:
        conditions.append(("Supervised", True, "Supervised", ""))
    created = str(job["metadata"].get("creationTimestamp") or now)
    return [condition(*entry, old, created if entry[0] == "Created" else now) for entry in conditions]


def _why_valid(problems: Sequence[str], unknown: Sequence[str]) -> tuple[str, str]:
    if problems:
        return "SpecRejected", "; ".join(problems)[:MESSAGE]
    text = "; ".join(map(unknown_fields.sentence, unknown))[:MESSAGE]
    return unknown_fields.REASON if unknown else "SpecAccepted", text


def _why_unreachable(members: Sequence[str]) -> tuple[str, str]:
    if not members:
        return "AllConnected", ""
    more = f" and {len(members) - NAMED} more" if len(members) > NAMED else ""
    named = ", ".join(members[:NAMED]) + more
    which = "runs, but its sidecar has" if len(members) == 1 else "run, but their sidecars have"
    return (
        "NeverConnected",
        f"{named} {which} never reached the master; {CHECK}. Also check that the pod has a sidecar"[:MESSAGE],
    )


def _why_failed(job: Document, phase: str, message: str) -> str:
    """The reason of the condition Failed; after the deadline it is that of a Kubernetes Job."""
    return "DeadlineExceeded" if run_policy.is_exceeded(job, message) else f"Job{phase}"


def condition(kind: str, holds: bool, reason: str, message: str, old: Mapping[Any, Document], now: str) -> Document:
    """A condition of the status. `old`: the present conditions by their type."""
    status, before = "True" if holds else "False", old.get(kind) or {}
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since or now}


def _scheduled(
    job: Document,
    phase: str,
    document: Mapping[str, Any],
    known: Mapping[MemberId, PodSeen],
    old: Mapping[Any, Document],
) -> tuple[str, bool, str, str]:
    """The condition Scheduled: enough workers for a generation, or all members of a PS job, have a node.

    It does not change after the job has ended, while its pods are deleted.
    """
    before = old.get("Scheduled")
    if phase in OVER and before is not None:
        return "Scheduled", before.get("status") == "True", str(before.get("reason")), str(before.get("message"))
    if phase == SUSPENDED:  # its pods may still be terminating, and the status is not written again when they are gone
        return "Scheduled", False, "JobSuspended", "the job is suspended and needs no workers"
    is_ps = _has_ps(job)
    roles = set(roles_of(job)) if is_ps else {str(WORKER), *([str(MASTER)] if has_master(job) else [])}
    those = [pod for pod in known.values() if pod.role in roles and not (is_ps and pod.phase in GONE)]
    least = sum(sizes(role)[0] for role in roles_of(job).values()) if is_ps else members(job)[0]
    placed = sum(1 for pod in those if pod.node)
    needed = f"{least} {'is' if least == 1 else 'are'} needed"
    noun = "member" if len(roles) > 1 else "worker"
    verb = "has" if placed == 1 or len(those) == 1 else "have"
    text = f"{placed} of {counted(len(those), noun)} {verb} a node; {needed}"
    if placed >= least:
        return "Scheduled", True, f"Enough{noun.capitalize()}s", text
    no_room = next((pod for pod in those if pod.unschedulable), None)
    if no_room is not None:
        return "Scheduled", False, "Unschedulable", f"{text}; {no_room.member}: {no_room.reason}"
    if rejected := rejected_pods(document, known):
        return "Scheduled", False, "CreateRejected", f"{text}; {rejected[0][0]}: {rejected[0][1]}"[:MESSAGE]
    message = str(document.get("message") or "")
    if not those and message.startswith(WAITS):
        text = f"{text}; the job {message}"
    return "Scheduled", False, f"TooFew{noun.capitalize()}s", text


def _has_ps(job: Document) -> bool:
    return "ps" in roles_of(job)


def _why_not_running(phase: str, document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> tuple[str, str]:
    """Reason and message of Running while it is False: what keeps the job from running and its user can fix."""
    if phase in (PENDING, RESTARTING) and any(m["state"] == UNSUPERVISED for m in document.get("members") or ()):
        return "KeyMismatch", str(document.get("message") or "")[:MESSAGE]
    stopped = {member for member, pod in known.items() if pod.cannot_start}
    blocked = [f"{member}: {reason}" for member, reason in blocked_pods(document, known) if member in stopped]
    if phase in (PENDING, RESTARTING) and blocked:
        return "PodsCannotStart", f"{len(blocked)} of {len(known)} pods cannot start; {blocked[0]}"[:MESSAGE]
    rejected = [f"{member}: {reason}" for member, reason in rejected_pods(document, known)]
    if phase in (PENDING, RESTARTING) and rejected:
        text = f"{len(rejected)} of {len(rejected) + len(known)} pods cannot be created; {rejected[0]}"
        return "CreateRejected", text[:MESSAGE]
    return f"Job{phase}", ""


def blocked_pods(document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> list[tuple[MemberId, str]]:
    """The members whose pods do not start, with the reasons; first those that cannot start by themselves.

    Between two attempts the kubelet reports less than the core has seen, so the core's reason is used then.
    """
    reported = {m["id"]: str(m.get("blocked") or "") for m in document.get("members") or ()}
    waiting = ((not pod.cannot_start, member, pod.reason) for member, pod in known.items()
               if pod.reason and (pod.phase == "pending" or pod.cannot_start))  # fmt: skip
    return [(member, reported[member] if reported.get(member, "").startswith(reason) else reason)
            for _order, member, reason in sorted(waiting)]  # fmt: skip


def rejected_pods(document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> list[tuple[MemberId, str]]:
    """The members without a pod because the API server rejects it, with the reasons."""
    rows = document.get("members") or ()
    return [
        (m["id"], f"its pod is rejected: {m['blocked']}") for m in rows if m.get("blocked") and m["id"] not in known
    ]
