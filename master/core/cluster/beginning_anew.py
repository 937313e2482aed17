"""A pod of a job that is over: was it part of it, does it come too late, or does it wait? (docs/adr/0035)

Refused for good, its trainer ends and its owner makes the next pod: right for what was part of the job, and where there
is a limit of retries (a Job). Pods of an owner that goes on for ever wait, and are told what begins the job anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from master.core.cluster.names import Document
from master.core.cluster.parts import entries, mapping
from master.core.cluster.phases import FAILED, SUCCEEDED

ENDLESS = ("StatefulSet", "PyTorchJob")
"""Owners that make a pod again whatever became of the last one."""
LOOK_AGAIN = 60.0
"""Seconds after which a pod that waits asks again."""
NOT_SHOWN = 2.0
"""The same of a pod that the watch has not shown yet."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What is kept of a job that is over."""

    uid: str
    job: Document
    """Its metadata and spec, where it stands for another owner's; else empty."""
    members: frozenset[str]
    """Uids of the pods that it ended with."""
    at: datetime | None
    """None where its status does not say it."""


@dataclass(frozen=True, slots=True)
class PartOfIt:
    reason: str


@dataclass(frozen=True, slots=True)
class Judged:
    """It comes too late, for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    reason: str
    seconds: float


def ended(job: Document) -> Ended:
    uid = str(mapping(job.get("metadata")).get("uid"))
    if not mapping(job.get("spec")).get("adopts"):
        return Ended(uid, {}, frozenset(), None)
    status = mapping(job.get("status"))
    kept = {"metadata": mapping(job["metadata"]), "spec": mapping(job["spec"])}
    return Ended(uid, kept, frozenset(_members(status)), _end(status))


def judged(name: str, over: Ended, uid: str, pod: Document | None) -> PartOfIt | Judged | Retry:
    """`name`: the job's, with its namespace; `uid`: of the pod that asks; `pod`: as the watch shows it."""
    if uid in over.members or not over.job:
        return PartOfIt(f"job {name!r} is over")
    if pod is None:
        return Retry(f"job {name!r} is over, and the platform has not shown pod {uid[:80]!r} yet", NOT_SHOWN)
    metadata, adopts = mapping(pod.get("metadata")), mapping(mapping(over.job["spec"]).get("adopts"))
    owner, namespace = f"{adopts.get('kind')} {adopts.get('name')}", over.job["metadata"].get("namespace")
    anew = f"kubectl delete ej {over.job['metadata'].get('name')} -n {namespace}"
    made = _moment(metadata.get("creationTimestamp"))
    if made is not None and over.at is not None and made <= over.at:
        return Judged(f"job {name!r} is over, and this pod was there before its end; {anew} begins it anew")
    if adopts.get("kind") in ENDLESS:
        return Retry(
            f"job {name!r} is over, and the message of its ElasticJob says why: pods that {owner} makes since wait, "
            f"and train once it is begun anew, by {anew}",
            LOOK_AGAIN,
        )
    if adopts.get("kind") == "Job" and not _is_of(metadata, over.job):
        return Retry(f"job {name!r} was of an earlier {owner}, and begins anew once its ElasticJob is gone", LOOK_AGAIN)
    return Judged(
        f"job {name!r} is over, and the message of its ElasticJob says why: this pod is a further attempt of {owner}, "
        f"whose limit (a Job's backoffLimit) says how many there are; {anew} lets the next one train"
    )


def _is_of(metadata: Document, job: Document) -> bool:
    """Its controller is the very owner that the job stands for."""
    owners = {mapping(each).get("uid") for each in entries(mapping(job["metadata"]).get("ownerReferences"))}
    controllers = (mapping(each) for each in entries(metadata.get("ownerReferences")))
    return any(each.get("controller") and each.get("uid") in owners for each in controllers)


def _members(status: Document) -> Iterator[str]:
    try:
        state = mapping(json.loads(mapping(status.get("saved")).get("state") or "null"))
    except (ValueError, TypeError, RecursionError):
        return
    for entry in mapping(state.get("members")).values():
        if isinstance(entry, list) and entry and isinstance(entry[0], str):
            yield entry[0]


def _end(status: Document) -> datetime | None:
    for condition in map(mapping, entries(status.get("conditions"))):
        if condition.get("type") in (SUCCEEDED, FAILED) and condition.get("status") == "True":
            return _moment(condition.get("lastTransitionTime"))
    return None


def _moment(text: object) -> datetime | None:
    """RFC 3339, as the API server writes it; None where it is none."""
    try:
        found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
