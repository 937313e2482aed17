"""What becomes of a pod of a job that is over. Was it part of it, does it come too late, does it wait, or does the job
begin anew with it?

Refused for good, its trainer ends and its owner makes the next pod: right for what was part of the job, and where there
is a limit of retries (a Job). Pods of an owner that goes on for ever wait, and are told what begins the job anew. A job
begins anew by itself with pods of another owner, or of another revision than its status has kept.
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
"""Owners that make a pod again whatever became of the last one."""
READ = (*ENDLESS, "JobSet", "Job")
"""Owners that tell who has made a pod, and from what."""
OF_ITS_END = (SUCCEEDED, FAILED, RESTARTING, SUSPENDED)
"""Conditions that a job which begins anew has not yet."""
CLOCKS = timedelta(seconds=5)
"""By which the moments that two API servers give two pods may differ."""
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
    owner: str = ""
    """The uid of the owner that it stood for; empty where that is not known."""
    revisions: frozenset[str] = frozenset()
    """Those of its members, as far as its status keeps them."""
    begun_anew: str = ""


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
    uid, status = str(mapping(job.get("metadata")).get("uid")), mapping(job.get("status"))
    if not mapping(job.get("spec")).get("adopts"):
        return Ended(uid, {}, frozenset(), None)
    kept = {"metadata": mapping(job["metadata"]), "spec": mapping(job["spec"])}
    saved = mapping(status.get("saved"))
    owner = str(saved.get(OWNER) or revisions.owner_of(job))
    of_members = frozenset(str(saved.get(REVISION) or "").split())
    return Ended(uid, kept, revisions.members(status), _end(status), owner, of_members, begun_anew(job))


# -- what becomes of a pod ----------------------------------------------------------------------------------------
def judged(
    name: str, over: Ended, uid: str, pod: Document | None, made: Made | None = None
) -> PartOfIt | Judged | Retry:
    """`name`: the job's, with its namespace; `uid`: of the pod that asks; `pod`: as the watch shows it; `made`: None
    where its owners have not been read."""
    if uid in over.members or not over.job:
        return PartOfIt(f"job {name!r} is over")
    if pod is None:
        return Retry(f"job {name!r} is over, and the platform has not shown pod {uid[:80]!r} yet", NOT_SHOWN)
    adopts, at = _adopts(over), _made_at(pod)
    owner, namespace = f"{adopts.get('kind')} {adopts.get('name')}", over.job["metadata"].get("namespace")
    anew = f"kubectl delete ej {over.job['metadata'].get('name')} -n {namespace}"
    if at is not None and over.at is not None and at <= over.at:
        return Judged(f"job {name!r} is over, and this pod was there before its end; {anew} begins it anew")
    if begins := why_anew(over, pod, made):
        return Retry(f"job {name!r} is about to begin anew: {begins}", NOT_SHOWN)
    unread = f"job {name!r} is over, and who has made pod {uid[:80]!r} is not read yet"
    if made is None and may_begin(over, pod):
        return Retry(unread, NOT_SHOWN)
    if adopts.get("kind") in ENDLESS:
        return Retry(
            f"job {name!r} is over, and the message of its ElasticJob says why: pods that {owner} makes since wait, "
            f"and train once its template is changed (kubectl rollout restart, of a StatefulSet), or by {anew}",
            LOOK_AGAIN,
        )
    if adopts.get("kind") in READ and made == UNREADABLE:
        return Retry(unread, LOOK_AGAIN)
    if adopts.get("kind") in READ and not _is_of(pod, over, made):
        return Retry(f"job {name!r} was of an earlier {owner}, and begins anew once its ElasticJob is gone", LOOK_AGAIN)
    return Judged(
        f"job {name!r} is over, and the message of its ElasticJob says why: this pod is a further attempt of {owner}, "
        f"whose limit (a Job's backoffLimit) says how many there are; {anew} lets the next one train"
    )


def may_begin(over: Ended, pod: Document) -> bool:
    """As far as the pod itself says: it is no pod of the job that has ended, and was made since."""
    metadata, at = pod["metadata"], _made_at(pod)
    is_new = at is not None and over.at is not None and at > over.at and metadata.get("uid") not in over.members
    return is_new and _adopts(over).get("kind") in READ and not (metadata.get("deletionTimestamp") or is_over(pod))


def why_anew(over: Ended, pod: Document, made: Made | None) -> str:
    """Why the job begins anew with this pod; empty: it does not."""
    if made is None or made.kind not in READ or not may_begin(over, pod):
        return ""
    if over.owner and made.owner and made.owner != over.owner:
        return f"{made.kind} {made.name} was applied again since it ended, and its pods are of another uid"
    is_other = bool(over.revisions and made.revision) and made.revision not in over.revisions
    if made.kind != "Job" and is_other:  # a Job's further attempts have a limit of their own
        return f"the template of {made.kind} {made.name} is another one than at its end"
    return ""


def _is_of(pod: Document, over: Ended, made: Made | None) -> bool:
    """Its outermost owner, or its controller as long as that is not read, is the very one that the job stands for."""
    if made is not None:
        return made.kind not in READ or not over.owner or made.owner == over.owner
    return mapping(controller_of(pod["metadata"])).get("uid") == over.owner


def _adopts(over: Ended) -> Document:
    return mapping(mapping(over.job.get("spec")).get("adopts"))


# -- its other beginning ------------------------------------------------------------------------------------------
def since(over: Ended, pod: Document, pods: Iterable[Document]) -> str:
    """From when on pods are of the job that begins anew with `pod`: those of its revision that were made since the end
    are, whatever clock has dated them."""
    same = (each for each in pods if may_begin(over, each) and _label(each) == _label(pod))
    times = [at for each in (pod, *same) if (at := _made_at(each)) is not None]
    assert over.at is not None, "may_begin has asked"
    return max(over.at + timedelta(seconds=1), min(times) - CLOCKS).strftime("%Y-%m-%dT%H:%M:%SZ")


def begun(job: Document, moment: str) -> Document:
    """The status with which it begins anew. Of what the masters had left stays only where numbers go on: every
    generation has a higher one than those that there were, or that were reserved for them."""
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
        "generation": str(status.get("generation") or ""),  # so that no pod takes it for one that never trained
        "observedGeneration": whole(status.get("observedGeneration")) or 0,
        "saved": {**saved, "state": json.dumps(state, separators=(",", ":"))},
    }


def begun_anew(job: Document) -> str:
    """From when on pods are its own; empty: it was never begun anew."""
    return str(mapping(mapping(job.get("status")).get("saved")).get(BEGUN_ANEW) or "")


def is_begun(job: Document, over: Ended) -> bool:
    """It is shown as it began anew after that end, and not as it was before."""
    return begun_anew(job) != over.begun_anew


def is_late(job: Document, begun_anew_at: str) -> bool:
    """It is shown as it was before it began anew: over."""
    return mapping(job.get("status")).get("phase") in OVER and begun_anew(job) != begun_anew_at


def is_of_before(pod: Document, begun_anew_at: str) -> bool:
    made = str(pod["metadata"].get("creationTimestamp") or "")  # RFC 3339 in UTC, to the second: in the order of time
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
    """RFC 3339, as the API server writes it; None where it is none."""
    try:
        found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
