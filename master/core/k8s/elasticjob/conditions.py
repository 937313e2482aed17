"""What `kubectl` shows of a job: the status of its ElasticJob, and Events.

The status is made anew from what the core says and from the pods; of the old one only the times of conditions that have
not changed are kept, and what the next master needs where the core has not said it yet. It stays small for large jobs:
the whole story of every member is in the master's own status (`outrider status`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from outrider.master.core import quantities
from outrider.master.core.events import PodSeen
from outrider.master.core.k8s.elasticjob import run_policy
from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from outrider.master.core.k8s.pods import unknown_fields
from outrider.master.core.k8s.pods.observe import seen
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.identity import name_of
from outrider.master.core.k8s.values.modes import OBSERVED
from outrider.master.core.k8s.values.names import DOMAIN, GROUP_VERSION, JOB, KIND, ROLE, Document
from outrider.master.core.k8s.values.phases import (
    CREATED,
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
from outrider.master.core.placement.admission import WAITS
from outrider.master.core.spec import MASTER, WORKER
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId

MEMBERS_SHOWN = 500
"""Of 10,000 members the status would be larger than the API server's database takes."""
FAULTS_SHOWN = 10
UNSUPERVISED = "unsupervised"
"""The state of members whose pods are another installation's."""
PAST = ("gone", "lost", "replaced", "failed")
"""Members in these states are shown only while their pod is there."""
GONE = ("failed", "terminating")
"""Phases of pods that are replaced one by one."""
MESSAGE = 1000
NAMED = 10
"""Members that a condition names."""

QUIET = frozenset(
    {"GenerationStarted", "MemberCreated", "MemberReady", "MemberDone", "CheckpointSaved", "CheckpointKept"}
)
"""Kinds that make no Event. The first four come once a member: a world of 10,000 would push every other Event of the
namespace out of sight; the conditions and members of the status say the same. CheckpointSaved and CheckpointKept come
once a save, for as long as the job runs. All of them are in the log and in `outrider events`."""


# -- status -------------------------------------------------------------------------------------------------------
def status_of(
    job: Document,
    document: Mapping[str, Any],
    pods: Sequence[Document],
    now: str,
    problems: Sequence[str] = (),
    unknown: Sequence[str] = (),
) -> Document:
    """`document`: what a SaveStatus action carries, empty where the core has said nothing yet; `now`: RFC 3339;
    `problems`: what `validation.problems` has against the newest spec, which is then not followed; `unknown`: paths of
    fields that pods are made without."""
    old = mapping(job.get("status"))
    known = _known(job, pods)
    phase = str(document.get("phase") or "").capitalize() or (PENDING if problems else CREATED)
    message = _message(document, phase, known, problems)
    faults = [_fault(fault) for fault in document.get("faults") or ()]
    counts = _counts(job, known.values())
    status: Document = {
        "phase": phase,
        "conditions": _conditions(job, phase, message, document, known, now, problems, unknown),
        "replicaStatuses": counts,
        "generation": str(document.get("generation") or ""),
        "observedGeneration": int(job["metadata"].get("generation") or 0),
        "workers": counts[WORKER]["active"] + counts[WORKER]["pending"],
        "selector": f"{JOB}={job['metadata']['name']}" + ("" if _adopts(job) else f",{ROLE}={WORKER}"),
        "step": int(document.get("step") or 0),
        "restarts": int(document.get("restarts") or 0),
        "goodput": None if document.get("goodput") is None else round(document["goodput"], 3),
        "members": _members(document, known),
        "memory": {index: quantities.written(n) for index, n in (document.get("memory") or {}).items()} or None,
        "nodeCheck": list(document.get("node_check") or ()) or None,
        "metrics": document.get("metrics"),
        "elasticScaling": elasticjob_scaling.status(mapping(document.get("scaling")), int(has_master(job))),
        "data": _data(document.get("data") or {}),
        "avoidedNodes": list(document.get("avoided_nodes") or ()) or None,
        "lastFault": faults[-1] if faults else None,
        "faults": faults[-FAULTS_SHOWN:],
        "message": message,
        "exitCode": document.get("exit_code"),
        "saved": _packed(document["saved"]) if document.get("saved") else _without_spec(old.get("saved")),
    }
    return {field: value for field, value in status.items() if value is not None}


def unsupervised(status: Mapping[str, Any], reason: str, message: str, now: str) -> Document:
    """The status as it is, but for the condition Supervised, which is False: nobody of ours looks after the job."""
    conditions = list(status.get("conditions") or ())
    old = {c.get("type"): c for c in conditions}
    wanted = _condition("Supervised", False, reason, message[:MESSAGE], old, now)
    return {**status, "conditions": [*(c for c in conditions if c.get("type") != "Supervised"), wanted]}


def refused(job: Document, problems: Sequence[str], now: str) -> Document:
    """The merge patch for the status of a job that is not run, whatever its document is: nothing of its spec is read.
    What an earlier master has written is kept, for the next one that can run it."""
    metadata, old = mapping(job.get("metadata")), mapping(job.get("status"))
    message = "; ".join(problems)[:MESSAGE]
    kept = {each.get("type"): each for each in map(mapping, entries(old.get("conditions"))) if each.get("type")}
    created = str(metadata.get("creationTimestamp") or now)
    kept.setdefault("Created", _condition("Created", True, "JobCreated", "", {}, created))
    kept["Valid"] = _condition("Valid", False, "SpecRefused", message, kept, now)
    generation = metadata.get("generation")
    status: Document = {
        "phase": str(old.get("phase") or PENDING),
        "conditions": list(kept.values()),
        "message": f"the spec cannot be run: {message}"[:MESSAGE],
        "observedGeneration": generation if isinstance(generation, int) else 0,
    }
    return {"metadata": {"uid": metadata.get("uid")}, "status": status}


def _without_spec(saved: object) -> Document | None:
    """Of an earlier master; whether it is needed still is known anew (`k8s.elasticjob.accepted_spec`)."""
    return {field: value for field, value in mapping(saved).items() if field != "spec"} or None


def _packed(saved: Mapping[str, Any]) -> Document:
    """One line of what is for the next master alone: `kubectl describe` shows each field of an object on a line."""
    return {"term": saved["term"], "state": json.dumps(saved, separators=(",", ":"))}


def left_by(status: Mapping[str, Any]) -> Document | None:
    """What an earlier master has left in this status; None where none has run the job."""
    state = (status.get("saved") or {}).get("state")
    return None if state is None else {**status, "saved": json.loads(state)}


def _data(told: Mapping[str, Any]) -> Document | None:
    """None where there is nothing to say."""
    if not told.get("notes") and not told.get("elastic"):
        return None
    return {"elastic": told["elastic"], "samplesRepeated": told["samples_repeated"], "notes": told["notes"]}


def _known(job: Document, pods: Sequence[Document]) -> dict[MemberId, PodSeen]:
    """Of a job that adopts, all are its workers, whatever role its owner calls them by: it counts them as one."""
    known = {pod.member: pod for pod in map(seen, pods) if pod is not None}
    return {member: replace(pod, role=WORKER) for member, pod in known.items()} if _adopts(job) else known


def _adopts(job: Document) -> bool:
    return bool(mapping(job.get("spec")).get("adopts"))


def _has_ps(job: Document) -> bool:
    return "ps" in roles_of(job)


def _message(
    document: Mapping[str, Any], phase: str, known: Mapping[MemberId, PodSeen], problems: Sequence[str]
) -> str:
    """While the job waits for members: also for which one, and what holds it up."""
    said = str(document.get("message") or "")
    if problems:
        said = f"the spec cannot be run: {'; '.join(problems)}"
    elif phase in (PENDING, RUNNING, RESTARTING):
        held = [f"{member}: {reason}" for member, reason in (*_held(document, known), *_refused(document, known))]
        if held and held[0] not in said:
            more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
            said = "; ".join(part for part in (said.rstrip("."), held[0] + more) if part)
    return said[:MESSAGE]


def _held(document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> list[tuple[MemberId, str]]:
    """Why pods do not start, those first that will not by themselves. Between two attempts the kubelet says less than
    the core was told before."""
    told = {m["id"]: str(m.get("held") or "") for m in document.get("members") or ()}
    waiting = ((not pod.cannot_start, member, pod.reason) for member, pod in known.items()
               if pod.reason and (pod.phase == "pending" or pod.cannot_start))  # fmt: skip
    return [(member, told[member] if told.get(member, "").startswith(reason) else reason)
            for _order, member, reason in sorted(waiting)]  # fmt: skip


def _refused(document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> list[tuple[MemberId, str]]:
    """Members that have no pod, because the cluster will not make it; and why."""
    rows = document.get("members") or ()
    return [(m["id"], f"its pod is refused: {m['held']}") for m in rows if m.get("held") and m["id"] not in known]


def _why_not_running(phase: str, document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> tuple[str, str]:
    """Reason and message of Running while it is false: what keeps a job from beginning that its users can put right."""
    if phase in (PENDING, RESTARTING) and any(m["state"] == UNSUPERVISED for m in document.get("members") or ()):
        return "KeyMismatch", str(document.get("message") or "")[:MESSAGE]
    stopped = {member for member, pod in known.items() if pod.cannot_start}
    held = [f"{member}: {reason}" for member, reason in _held(document, known) if member in stopped]
    if phase in (PENDING, RESTARTING) and held:
        return "PodsCannotStart", f"{len(held)} of {len(known)} pods cannot start; {held[0]}"[:MESSAGE]
    refused = [f"{member}: {reason}" for member, reason in _refused(document, known)]
    if phase in (PENDING, RESTARTING) and refused:
        return "CreateRefused", f"{len(refused)} of {len(refused) + len(known)} pods are refused; {refused[0]}"[
            :MESSAGE
        ]
    return f"Job{phase}", ""


def _counts(job: Document, pods: Any) -> dict[str, dict[str, int]]:
    """Pods by role. One that is being deleted counts nowhere, as in a Job's status."""
    counts = {role: {"active": 0, "succeeded": 0, "failed": 0, "pending": 0}
              for role in sorted({str(WORKER), *roles_of(job)})}  # fmt: skip
    for pod in pods:
        kind = "active" if pod.phase == "running" else pod.phase
        if kind in ("active", "succeeded", "failed", "pending") and pod.role in counts:
            counts[pod.role][kind] += 1
    return counts


def _fault(fault: Mapping[str, Any]) -> Document:
    return {
        "time": fault.get("time"),
        "kind": fault.get("kind"),
        "member": fault.get("member"),
        "reason": fault.get("reason"),
        "secondsLost": fault.get("seconds_lost"),
    }


def _members(document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> list[Document]:
    shown = []
    for member in document.get("members") or ():
        pod = known.get(member["id"])
        if member["state"] in PAST and pod is None:
            continue
        short = {"id": member["id"], "rankIndex": member.get("rank_index"), "state": member["state"],
                 "rung": member.get("rung") or None}  # fmt: skip
        if pod is not None:
            memory = quantities.written(pod.memory_limit) if pod.memory_limit else None
            short |= {"node": pod.node or None, "reason": pod.reason or None, "memory": memory}
        shown.append({field: value for field, value in short.items() if value is not None})
        if len(shown) == MEMBERS_SHOWN:
            break
    return shown


# -- conditions ---------------------------------------------------------------------------------------------------
def _conditions(
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
        RUNNING: (phase == RUNNING, "WorldRuns", world),
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
    cut = mapping(document.get("network")).get("cut") or ()
    if cut or "NetworkFault" in old:
        told = " ".join(str(each["reason"]) for each in cut)[:MESSAGE]
        wanted.append(("NetworkFault", bool(cut), "LinkCut" if cut else "LinksWell", told))
    if (in_place := mapping(document.get("saves_in_place"))) or "CheckpointsNotAtomic" in old:
        told = " ".join(f"{member}: {why}." for member, why in in_place.items())[:MESSAGE]
        wanted.append(("CheckpointsNotAtomic", bool(in_place), "NoRoomForTwo" if in_place else "SavedWhole", told))
    unheard = list(document.get("unreached") or ())
    if unheard or "MembersUnreached" in old:
        wanted.append(("MembersUnreached", bool(unheard), *_why_unreached(unheard)))
    if problems or unknown or "Valid" in old:
        wanted.append(("Valid", not problems, *_why_valid(problems, unknown)))
    would = document.get("would")
    if would is not None:
        told = "It is only observed, and nothing is done."
        wanted.append(("Supervised", False, OBSERVED, f"{told} {' '.join(reversed(would))}".strip()[:MESSAGE]))
    elif "Supervised" in old:
        wanted.append(("Supervised", True, "Supervised", ""))
    created = str(job["metadata"].get("creationTimestamp") or now)
    return [_condition(*entry, old, created if entry[0] == "Created" else now) for entry in wanted]


def _why_valid(problems: Sequence[str], unknown: Sequence[str]) -> tuple[str, str]:
    if problems:
        return "SpecRefused", "; ".join(problems)[:MESSAGE]
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


def _condition(kind: str, holds: bool, reason: str, message: str, old: Mapping[Any, Document], now: str) -> Document:
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
    if refused := _refused(document, known):
        return "Scheduled", False, "CreateRefused", f"{told}; {refused[0][0]}: {refused[0][1]}"[:MESSAGE]
    said = str(document.get("message") or "")
    if not those and said.startswith(WAITS):
        told = f"{told}; the job {said}"
    return "Scheduled", False, f"TooFew{noun.capitalize()}s", told


# -- Events -------------------------------------------------------------------------------------------------------
def event_of(job: Document, kind: str, reason: str, severity: str, member: str | None, now: str) -> Document | None:
    """The Event of an announcement about this job; None for the kinds in QUIET. `now` (RFC 3339) is part of its name:
    told twice it is one, and what happens again is another."""
    if kind in QUIET:
        return None
    metadata = job["metadata"]
    namespace = metadata.get("namespace") or "default"
    said = "\n".join((str(metadata.get("uid")), kind, member or "", reason, now))
    about: Document = {
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "namespace": namespace,
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
    }
    event: Document = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
            "namespace": namespace,
        },
        "involvedObject": about,
        "type": "Warning" if severity == "warning" else "Normal",
        "reason": kind,
        "message": "".join(each if each.isprintable() else " " for each in reason[:MESSAGE]),
        "source": {"component": "outrider"},
        "reportingComponent": f"{DOMAIN}/master",
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    if member is not None:
        pod = name_of(job, MemberId(member))
        event["related"] = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod}
    return event
