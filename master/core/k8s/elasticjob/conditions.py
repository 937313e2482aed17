"""The conditions of a job in the status of its ElasticJob: which hold, since when, and why."""

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
"""The state of members whose pods are another installation's."""
GONE = ("failed", "terminating")
"""Phases of pods that are replaced one by one."""
MESSAGE = 1000
"""Characters of one."""
NAMED = 10
"""Members that a condition names."""


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
    """A condition appears when it is true for the first time, and stays. A time changes only with the status."""
    old = {c.get("type"): c for c in map(mapping, entries(mapping(job.get("status")).get("conditions")))}
    faults = document.get("faults") or ()
    why_restarting = faults[-1].get("kind") if faults else "Restarting"
    size = document.get("world") or 0
    world = counted(size, "member") if _has_ps(job) else f"generation {document.get('generation')}, {size} ranks"
    is_true = {
        RUNNING: (phase == RUNNING, "GenerationRunning", world),
        RESTARTING: (phase == RESTARTING, str(why_restarting), message),
        SUSPENDED: (phase == SUSPENDED, "SuspendAsked", message),
        SUCCEEDED: (phase == SUCCEEDED, "JobSucceeded", message),
        FAILED: (phase in (FAILED, STOPPED), _why_failed(job, phase, message), message),
    }
    wanted = [("Created", True, "JobCreated", ""), _scheduled(job, phase, document, known, old)]
    for kind, (holds, reason, text) in is_true.items():
        if holds or kind in old or kind == RUNNING:
            why_not = _why_not_running(phase, document, known) if kind == RUNNING else (f"Job{phase}", "")
            wanted.append((kind, holds, *((reason, text) if holds else why_not)))
    cut = mapping(document.get("network")).get("down") or ()
    if cut or "NetworkFault" in old:
        told = " ".join(str(each["reason"]) for each in cut)[:MESSAGE]
        wanted.append(("NetworkFault", bool(cut), "LinkDown" if cut else "LinksWell", told))
    if (in_place := mapping(document.get("non_atomic_saves"))) or "CheckpointsNotAtomic" in old:
        told = " ".join(f"{member}: {why}." for member, why in in_place.items())[:MESSAGE]
        wanted.append(("CheckpointsNotAtomic", bool(in_place), "NoRoomForTwo" if in_place else "SavedWhole", told))
    unheard = list(document.get("unreachable") or ())
    if unheard or "MembersUnreachable" in old:
        wanted.append(("MembersUnreachable", bool(unheard), *_why_unreached(unheard)))
    if problems or unknown or "Valid" in old:
        wanted.append(("Valid", not problems, *_why_valid(problems, unknown)))
    would = document.get("dry_run")
    if would is not None:
        told = "It is only observed, and nothing is done."
        wanted.append(("Supervised", False, OBSERVED, f"{told} {' '.join(reversed(would))}".strip()[:MESSAGE]))
    elif "Supervised" in old:
        wanted.append(("Supervised", True, "Supervised", ""))
    created = str(job["metadata"].get("creationTimestamp") or now)
    return [condition(*entry, old, created if entry[0] == "Created" else now) for entry in wanted]


def _why_valid(problems: Sequence[str], unknown: Sequence[str]) -> tuple[str, str]:
    if problems:
        return "SpecRejected", "; ".join(problems)[:MESSAGE]
    said = "; ".join(map(unknown_fields.sentence, unknown))[:MESSAGE]
    return unknown_fields.REASON if unknown else "SpecTaken", said


def _why_unreached(members: Sequence[str]) -> tuple[str, str]:
    if not members:
        return "AllHeard", ""
    more = f" and {len(members) - NAMED} more" if len(members) > NAMED else ""
    named = ", ".join(members[:NAMED]) + more
    which = "runs, and its sidecar has" if len(members) == 1 else "run, and their sidecars have"
    return "NeverHeard", f"{named} {which} never reached the master: {CHECK}, and that it has a sidecar"[:MESSAGE]


def _why_failed(job: Document, phase: str, message: str) -> str:
    """Of a deadline that has passed: the reason that a Job of Kubernetes has then."""
    return "DeadlineExceeded" if run_policy.is_exceeded(job, message) else f"Job{phase}"


def condition(kind: str, holds: bool, reason: str, message: str, old: Mapping[Any, Document], now: str) -> Document:
    """As it stands in the status. `old`: those that are there, by their type."""
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
    """Enough workers for a world have a node, or all members of a PS job. What was true when the job ended stays so
    while its pods go."""
    before = old.get("Scheduled")
    if phase in OVER and before is not None:
        return "Scheduled", before.get("status") == "True", str(before.get("reason")), str(before.get("message"))
    if phase == SUSPENDED:  # its pods may still be on their way out, and nobody writes the status when they are gone
        return "Scheduled", False, "JobSuspended", "the job is suspended, and wants no workers"
    is_ps = _has_ps(job)
    roles = set(roles_of(job)) if is_ps else {str(WORKER), *([str(MASTER)] if has_master(job) else [])}
    those = [pod for pod in known.values() if pod.role in roles and not (is_ps and pod.phase in GONE)]
    least = sum(sizes(role)[0] for role in roles_of(job).values()) if is_ps else members(job)[0]
    placed = sum(1 for pod in those if pod.node)
    needed = f"{least} {'is' if least == 1 else 'are'} needed"
    noun = "member" if len(roles) > 1 else "worker"
    told = f"{placed} of {counted(len(those), noun)} {'has' if len(those) == 1 else 'have'} a node, {needed}"
    if placed >= least:
        return "Scheduled", True, f"Enough{noun.capitalize()}s", told
    no_room = next((pod for pod in those if pod.unschedulable), None)
    if no_room is not None:
        return "Scheduled", False, "Unschedulable", f"{told}; {no_room.member}: {no_room.reason}"
    if refused := refused_pods(document, known):
        return "Scheduled", False, "CreateRejected", f"{told}; {refused[0][0]}: {refused[0][1]}"[:MESSAGE]
    said = str(document.get("message") or "")
    if not those and said.startswith(WAITS):
        told = f"{told}; the job {said}"
    return "Scheduled", False, f"TooFew{noun.capitalize()}s", told


def _has_ps(job: Document) -> bool:
    return "ps" in roles_of(job)


def _why_not_running(phase: str, document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> tuple[str, str]:
    """Reason and message of Running while it is false: what keeps a job from beginning that its users can put right."""
    if phase in (PENDING, RESTARTING) and any(m["state"] == UNSUPERVISED for m in document.get("members") or ()):
        return "KeyMismatch", str(document.get("message") or "")[:MESSAGE]
    stopped = {member for member, pod in known.items() if pod.cannot_start}
    held = [f"{member}: {reason}" for member, reason in held_pods(document, known) if member in stopped]
    if phase in (PENDING, RESTARTING) and held:
        return "PodsCannotStart", f"{len(held)} of {len(known)} pods cannot start; {held[0]}"[:MESSAGE]
    refused = [f"{member}: {reason}" for member, reason in refused_pods(document, known)]
    if phase in (PENDING, RESTARTING) and refused:
        return "CreateRejected", f"{len(refused)} of {len(refused) + len(known)} pods are refused; {refused[0]}"[
            :MESSAGE
        ]
    return f"Job{phase}", ""


def held_pods(document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> list[tuple[MemberId, str]]:
    """Why pods do not start, those first that will not by themselves. Between two attempts the kubelet says less than
    the core was told before."""
    told = {m["id"]: str(m.get("blocked") or "") for m in document.get("members") or ()}
    waiting = ((not pod.cannot_start, member, pod.reason) for member, pod in known.items()
               if pod.reason and (pod.phase == "pending" or pod.cannot_start))  # fmt: skip
    return [(member, told[member] if told.get(member, "").startswith(reason) else reason)
            for _order, member, reason in sorted(waiting)]  # fmt: skip


def refused_pods(document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> list[tuple[MemberId, str]]:
    """Members that have no pod, because the cluster will not make it; and why."""
    rows = document.get("members") or ()
    return [(m["id"], f"its pod is refused: {m['blocked']}") for m in rows if m.get("blocked") and m["id"] not in known]
