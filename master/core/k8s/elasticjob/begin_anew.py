"""The verdict on a pod whose job is over: rejected, waiting, or the first of a new run.

A rejected pod's trainer ends and its owner creates the next pod. That is right for pods that were part of the job, and
for owners with a limit of retries (a Job). Pods of an owner that replaces pods for ever wait, and their log says how to
start the job again. A job starts again by itself with pods of another owner, or of a revision that its status does not
have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from outrider.master.core.k8s.owners import revisions
from outrider.master.core.k8s.owners.references import controller_of
from outrider.master.core.k8s.owners.revisions import BEGUN_ANEW, LABEL, OWNER, REVISION, UNREADABLE, Made
from outrider.master.core.k8s.pods.observe import is_over
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.phases import CREATED, FAILED, OVER, RESTARTING, SUCCEEDED, SUSPENDED

ENDLESS = ("StatefulSet", "PyTorchJob")
"""Kinds of owners that always replace a pod, however the last one ended."""
READ = (*ENDLESS, "JobSet", "Job")
"""Kinds of owners whose document shows the creator and the revision of a pod."""
OF_ITS_END = (SUCCEEDED, FAILED, RESTARTING, SUSPENDED)
"""Conditions that are removed when a job starts again."""
CLOCKS = timedelta(seconds=5)
"""Maximum clock difference between two API servers that create pods."""
LOOK_AGAIN = 60.0
"""Seconds after which a waiting pod asks again."""
NOT_SHOWN = 2.0
"""Seconds after which a pod that the watch has not shown yet asks again."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The facts that the master keeps of a job that is over."""

    uid: str
    job: Document
    """Metadata and spec of the ElasticJob if it adopts pods; else empty."""
    members: frozenset[str]
    """UIDs of the pods that the job had when it ended."""
    at: datetime | None
    """Time of the end; None if the status does not have it."""
    owner: str = ""
    """UID of the owner of the job's pods; empty if unknown."""
    revisions: frozenset[str] = frozenset()
    """Revisions of the job's pods, as far as the status has them."""
    begun_anew: str = ""
    """RFC 3339 time of the job's last new start; empty if it never started again."""


@dataclass(frozen=True, slots=True)
class PartOfIt:
    """The pod was part of the job."""

    reason: str


@dataclass(frozen=True, slots=True)
class Judged:
    """The pod came too late and is rejected for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The pod waits and asks again after `seconds`."""

    reason: str
    seconds: float


def ended(job: Document) -> Ended:
    """The facts to keep of an ElasticJob that is over."""
    uid, status = str(mapping(job.get("metadata")).get("uid")), mapping(job.get("status"))
    if not mapping(job.get("spec")).get("adopts"):
        return Ended(uid, {}, frozenset(), None)
    kept = {"metadata": mapping(job["metadata"]), "spec": mapping(job["spec"])}
    saved = mapping(status.get("saved"))
    owner = str(saved.get(OWNER) or revisions.owner_of(job))
    of_members = frozenset(str(saved.get(REVISION) or "").split())
    return Ended(uid, kept, revisions.members(status), _end(status), owner, of_members, begun_anew(job))


# -- the verdict on a pod -----------------------------------------------------------------------------------------
def judged(
    name: str, over: Ended, uid: str, pod: Document | None, made: Made | None = None
) -> PartOfIt | Judged | Retry:
    """The verdict on a pod that connects to a job that is over.

    `name`: the job's name with its namespace; `uid`: the pod's; `pod`: the pod as the watch shows it; `made`: None if
    the pod's owners have not been read.
    """
    if uid in over.members or not over.job:
        return PartOfIt(f"job {name!r} is over")
    if pod is None:
        return Retry(f"job {name!r} is over; the watch has not shown pod {uid[:80]!r} yet", NOT_SHOWN)
    adopts, at = _adopts(over), _made_at(pod)
    owner, namespace = f"{adopts.get('kind')} {adopts.get('name')}", over.job["metadata"].get("namespace")
    start_again = f"kubectl delete ej {over.job['metadata'].get('name')} -n {namespace}"
    if at is not None and over.at is not None and at <= over.at:
        return Judged(
            f"job {name!r} is over, and this pod was created before the end; to start the job again: {start_again}"
        )
    if begins := why_anew(over, pod, made):
        return Retry(f"job {name!r} is about to start again: {begins}", NOT_SHOWN)
    unread = f"job {name!r} is over; the owner of pod {uid[:80]!r} has not been read yet"
    if made is None and may_begin(over, pod):
        return Retry(unread, NOT_SHOWN)
    if adopts.get("kind") in ENDLESS:
        return Retry(
            f"job {name!r} is over (reason: see the message of its ElasticJob); new pods of {owner} wait until its "
            f"template changes (a StatefulSet: kubectl rollout restart) or until you run: {start_again}",
            LOOK_AGAIN,
        )
    if adopts.get("kind") in READ and made == UNREADABLE:
        return Retry(unread, LOOK_AGAIN)
    if adopts.get("kind") in READ and not _is_of(pod, over, made):
        return Retry(
            f"job {name!r} belonged to an earlier {owner}; it starts again once its ElasticJob is deleted", LOOK_AGAIN
        )
    return Judged(
        f"job {name!r} is over (reason: see the message of its ElasticJob); this pod is a further attempt of {owner}, "
        f"whose limit (a Job's backoffLimit) ends these attempts; to let the next pod train: {start_again}"
    )


def may_begin(over: Ended, pod: Document) -> bool:
    """Whether the pod alone permits a new start: it was created after the end and was not part of the job."""
    metadata, at = pod["metadata"], _made_at(pod)
    is_new = at is not None and over.at is not None and at > over.at and metadata.get("uid") not in over.members
    return is_new and _adopts(over).get("kind") in READ and not (metadata.get("deletionTimestamp") or is_over(pod))


def why_anew(over: Ended, pod: Document, made: Made | None) -> str:
    """Why the job starts again with this pod; empty if it does not."""
    if made is None or made.kind not in READ or not may_begin(over, pod):
        return ""
    if over.owner and made.owner and made.owner != over.owner:
        return f"{made.kind} {made.name} was created again after the end (another uid)"
    is_other = bool(over.revisions and made.revision) and made.revision not in over.revisions
    if made.kind != "Job" and is_other:  # a Job's further attempts have a limit of their own
        return f"the template of {made.kind} {made.name} has changed since the end"
    return ""


def _is_of(pod: Document, over: Ended, made: Made | None) -> bool:
    """Whether the pod belongs to the job's owner: by its outermost owner, or its controller if that is not read yet."""
    if made is not None:
        return made.kind not in READ or not over.owner or made.owner == over.owner
    return mapping(controller_of(pod["metadata"])).get("uid") == over.owner


def _adopts(over: Ended) -> Document:
    return mapping(mapping(over.job.get("spec")).get("adopts"))


# -- the new start ------------------------------------------------------------------------------------------------
def since(over: Ended, pod: Document, pods: Iterable[Document]) -> str:
    """RFC 3339 time from which pods belong to the new run that starts with `pod`.

    All pods of its revision that were created after the end belong to it, whichever API server's clock dated them.
    """
    same = (each for each in pods if may_begin(over, each) and _label(each) == _label(pod))
    times = [at for each in (pod, *same) if (at := _made_at(each)) is not None]
    assert over.at is not None, "may_begin has asked"
    return max(over.at + timedelta(seconds=1), min(times) - CLOCKS).strftime("%Y-%m-%dT%H:%M:%SZ")


def begun(job: Document, moment: str) -> Document:
    """The status with which the job starts again.

    Of the earlier masters' state only the counters stay, so each new generation has a higher number than all earlier
    and reserved ones.
    """
    status, left = mapping(job.get("status")), revisions.state_of(mapping(job.get("status")))
    reserved = entries(left.get("reserved"))
    up_to = (whole(reserved[1]) if len(reserved) == 2 else None) or 0
    next_id = {role: count for role, count in mapping(left.get("next_id")).items() if whole(count) is not None}
    state = {
        "anew": True,
        "term": whole(left.get("term")) or 0,
        "number": max(whole(left.get("number")) or 0, up_to),
        "version": whole(left.get("version")) or 0,
        "next_id": next_id,
        "reserved": [whole(each) or 0 for each in reserved] if len(reserved) == 2 else [0, 0],
    }
    conditions = map(mapping, entries(status.get("conditions")))
    saved = {"term": whole(mapping(status.get("saved")).get("term")) or 0, BEGUN_ANEW: moment}
    return {
        "phase": CREATED,
        "conditions": [each for each in conditions if each and each.get("type") not in OF_ITS_END],
        "generation": str(status.get("generation") or ""),  # so no pod takes the job for one that never trained
        "observedGeneration": whole(status.get("observedGeneration")) or 0,
        "saved": {**saved, "state": json.dumps(state, separators=(",", ":"))},
    }


def begun_anew(job: Document) -> str:
    """RFC 3339 time from which pods belong to the job; empty if it never started again."""
    return str(mapping(mapping(job.get("status")).get("saved")).get(BEGUN_ANEW) or "")


def is_begun(job: Document, over: Ended) -> bool:
    """Whether the document shows the job after its new start, and no longer as it ended."""
    return begun_anew(job) != over.begun_anew


def is_late(job: Document, begun_anew_at: str) -> bool:
    """Whether the document still shows the job as over, before its new start."""
    return mapping(job.get("status")).get("phase") in OVER and begun_anew(job) != begun_anew_at


def is_of_before(pod: Document, begun_anew_at: str) -> bool:
    """Whether the pod was created before the job's new start."""
    made = str(pod["metadata"].get("creationTimestamp") or "")  # RFC 3339 in UTC, in seconds: sorts by time
    return bool(made) and made < begun_anew_at


def _label(pod: Document) -> object:
    return mapping(pod["metadata"].get("labels")).get(LABEL)


def _end(status: Document) -> datetime | None:
    for condition in map(mapping, entries(status.get("conditions"))):
        if condition.get("type") in (SUCCEEDED, FAILED) and condition.get("status") == "True":
            return _moment(condition.get("lastTransitionTime"))
    return None


def _made_at(pod: Document) -> datetime | None:
    return _moment(mapping(pod.get("metadata")).get("creationTimestamp"))


def _moment(text: object) -> datetime | None:
    """The time in a text of the API server (RFC 3339); None if it is not a time."""
    try:
        found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
