"""The status of an ElasticJob, which `kubectl` shows.

Each status is built from the core's status document and the pods. Only two parts of the old status stay: the times of
unchanged conditions, and the data for the next master until the core provides it. The status stays small for large
jobs; the master's own status has all facts about each member (`outrider status`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from outrider.master.core import quantities
from outrider.master.core.events import PodSeen
from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from outrider.master.core.k8s.elasticjob.conditions import (
    MESSAGE,
    blocked_pods,
    condition,
    conditions_of,
    rejected_pods,
)
from outrider.master.core.k8s.pods.observe import seen
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import JOB, ROLE, Document
from outrider.master.core.k8s.values.phases import CREATED, PENDING, RESTARTING, RUNNING
from outrider.master.core.k8s.values.replica_specs import has_master, roles_of
from outrider.master.core.spec import WORKER
from outrider.wire.ids import MemberId

MEMBERS_SHOWN = 500
"""Maximum number of members in the status: with 10,000 it would exceed the limit of the API server's database."""
FAULTS_SHOWN = 10
"""Maximum number of faults in the status."""
STRAGGLERS_SHOWN = 16
"""Maximum number of slow members in the status."""
PAST = ("gone", "lost", "replaced", "failed")
"""States of members that are shown only while their pod exists."""


def status_of(
    job: Document,
    document: Mapping[str, Any],
    pods: Sequence[Document],
    now: str,
    problems: Sequence[str] = (),
    unknown: Sequence[str] = (),
) -> Document:
    """The status of a job.

    `document`: the core's status document from a SaveStatus action, empty before the first; `now`: RFC 3339;
    `problems`: field errors of the newest spec, which is then not followed; `unknown`: paths of template fields that
    the API server dropped from the pods.
    """
    old = mapping(job.get("status"))
    known = _known(job, pods)
    phase = str(document.get("phase") or "").capitalize() or (PENDING if problems else CREATED)
    message = _message(document, phase, known, problems)
    faults = [_fault(fault) for fault in document.get("faults") or ()]
    counts = _counts(job, known.values())
    status: Document = {
        "phase": phase,
        "conditions": conditions_of(job, phase, message, document, known, now, problems, unknown),
        "replicaStatuses": counts,
        "generation": str(document.get("generation") or ""),
        "observedGeneration": int(job["metadata"].get("generation") or 0),
        "workers": counts[WORKER]["active"] + counts[WORKER]["pending"],
        "selector": f"{JOB}={job['metadata']['name']}" + ("" if _adopts(job) else f",{ROLE}={WORKER}"),
        "step": int(document.get("step") or 0),
        "restarts": int(document.get("restarts") or 0),
        "goodput": _ratio(document.get("goodput")),
        "goodputHour": _ratio(document.get("goodput_1h")),
        "goodputDay": _ratio(document.get("goodput_1d")),
        "goodputBySteps": _ratio(document.get("goodput_by_steps")),
        "mtbfSeconds": document.get("mtbf_seconds"),
        "time": {cause: round(spent, 1) for cause, spent in (document.get("time") or {}).items()} or None,
        "members": _members(document, known),
        "memory": {index: quantities.written(n) for index, n in (document.get("memory") or {}).items()} or None,
        "nodeCheck": list(document.get("node_check") or ()) or None,
        "metrics": document.get("metrics"),
        "elasticScaling": elasticjob_scaling.status(mapping(document.get("scaling")), int(has_master(job))),
        "data": _data(document.get("data") or {}),
        "checkpointSavedAt": document.get("checkpoint_saved_at"),
        "stragglers": [_straggler(each) for each in (document.get("stragglers") or ())[:STRAGGLERS_SHOWN]] or None,
        "excludedNodes": list(document.get("excluded_nodes") or ()) or None,
        "lastFault": faults[-1] if faults else None,
        "faults": faults[-FAULTS_SHOWN:],
        "message": message,
        "exitCode": document.get("exit_code"),
        "saved": _packed(document["saved"]) if document.get("saved") else _without_spec(old.get("saved")),
    }
    return {field: value for field, value in status.items() if value is not None}


def unsupervised(status: Mapping[str, Any], reason: str, message: str, now: str) -> Document:
    """The status with the condition Supervised set to False: Outrider does not supervise the job."""
    conditions = list(status.get("conditions") or ())
    old = {c.get("type"): c for c in conditions}
    new = condition("Supervised", False, reason, message[:MESSAGE], old, now)
    return {**status, "conditions": [*(c for c in conditions if c.get("type") != "Supervised"), new]}


def refused(job: Document, problems: Sequence[str], now: str) -> Document:
    """The merge patch for the status of a job that cannot be run; its spec is not read and may have any shape.

    The data of an earlier master stays, for the next master that can run the job.
    """
    metadata, old = mapping(job.get("metadata")), mapping(job.get("status"))
    message = "; ".join(problems)[:MESSAGE]
    kept = {each.get("type"): each for each in map(mapping, entries(old.get("conditions"))) if each.get("type")}
    created = str(metadata.get("creationTimestamp") or now)
    kept.setdefault("Created", condition("Created", True, "JobCreated", "", {}, created))
    kept["Valid"] = condition("Valid", False, "SpecRejected", message, kept, now)
    generation = metadata.get("generation")
    status: Document = {
        "phase": str(old.get("phase") or PENDING),
        "conditions": list(kept.values()),
        "message": f"the spec is invalid: {message}"[:MESSAGE],
        "observedGeneration": generation if isinstance(generation, int) else 0,
    }
    return {"metadata": {"uid": metadata.get("uid")}, "status": status}


def _without_spec(saved: object) -> Document | None:
    """The data of an earlier master without its spec; `k8s.elasticjob.accepted_spec` adds the spec if needed."""
    return {field: value for field, value in mapping(saved).items() if field != "spec"} or None


def _packed(saved: Mapping[str, Any]) -> Document:
    """The data for the next master as one string: `kubectl describe` shows each field of an object on its own line."""
    return {"term": saved["term"], "state": json.dumps(saved, separators=(",", ":"))}


def left_by(status: Mapping[str, Any]) -> Document | None:
    """The data of an earlier master in this status; None if no master has run the job."""
    state = (status.get("saved") or {}).get("state")
    return None if state is None else {**status, "saved": json.loads(state)}


def _data(data: Mapping[str, Any]) -> Document | None:
    """`status.data`; None if data positions are not followed and there are no notes."""
    if not data.get("notes") and not data.get("elastic"):
        return None
    return {"elastic": data["elastic"], "samplesRepeated": data["samples_repeated"], "notes": data["notes"]}


def _known(job: Document, pods: Sequence[Document]) -> dict[MemberId, PodSeen]:
    """The pods by member. In a job that adopts pods, all are workers, whatever role their owner gives them."""
    known = {pod.member: pod for pod in map(seen, pods) if pod is not None}
    return {member: replace(pod, role=WORKER) for member, pod in known.items()} if _adopts(job) else known


def _adopts(job: Document) -> bool:
    return bool(mapping(job.get("spec")).get("adopts"))


def _message(
    document: Mapping[str, Any], phase: str, known: Mapping[MemberId, PodSeen], problems: Sequence[str]
) -> str:
    """The job's message; while it waits for members also the first pod that does not start, with the reason."""
    message = str(document.get("message") or "")
    if problems:
        message = f"the spec is invalid: {'; '.join(problems)}"
    elif phase in (PENDING, RUNNING, RESTARTING):
        missing = (*blocked_pods(document, known), *rejected_pods(document, known))
        blocked = [f"{member}: {reason}" for member, reason in missing]
        if blocked and blocked[0] not in message:
            more = f" (and {len(blocked) - 1} more)" if len(blocked) > 1 else ""
            message = "; ".join(part for part in (message.rstrip("."), blocked[0] + more) if part)
    return message[:MESSAGE]


def _counts(job: Document, pods: Any) -> dict[str, dict[str, int]]:
    """Pods by role and phase. A pod that is being deleted does not count, as in a Job's status."""
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
        **({"stages": fault["stages"]} if fault.get("stages") else {}),
    }


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _straggler(each: Mapping[str, Any]) -> Document:
    seconds = {"ownSeconds": each["own_seconds"], "othersSeconds": each["others_seconds"]}
    return {field: each[field] for field in ("member", "node", "rank", "cause", "reason")} | seconds


def _members(document: Mapping[str, Any], known: Mapping[MemberId, PodSeen]) -> list[Document]:
    shown = []
    for member in document.get("members") or ():
        pod = known.get(member["id"])
        if member["state"] in PAST and pod is None:
            continue
        short = {"id": member["id"], "rankIndex": member.get("rank_index"), "state": member["state"],
                 "mode": member.get("mode") or None}  # fmt: skip
        if pod is not None:
            memory = quantities.written(pod.memory_limit) if pod.memory_limit else None
            short |= {"node": pod.node or None, "reason": pod.reason or None, "memory": memory}
        shown.append({field: value for field, value in short.items() if value is not None})
        if len(shown) == MEMBERS_SHOWN:
            break
    return shown
