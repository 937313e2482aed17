"""Pods that the watch shows no more, though nobody was deleting them.

The watch shows what has the label of a job. So a pod whose label was taken away looks like one that was deleted by
force, and only reading it tells the two apart: what runs in the first must be ended, or it trains on beside the next
world.
"""

from __future__ import annotations

from master.core.cluster.names import JOB, Document
from master.core.cluster.parts import mapping
from master.core.cluster.pods import gone, is_over, job_of
from master.core.events import PodGone, PodSeen


def may_run(pod: Document) -> bool:
    """As it was shown last, nobody was deleting it, and something in it ran."""
    return not pod["metadata"].get("deletionTimestamp") and not is_over(pod)


def read_again(pod: Document, seen: PodSeen, now: Document) -> PodGone | None:
    """What the core is told of it. `now`: as it reads; empty where it is not there. None: its label is back already."""
    metadata = mapping(now.get("metadata"))
    is_the_same = metadata.get("uid") == pod["metadata"].get("uid")
    if not is_the_same or metadata.get("deletionTimestamp") or is_over(now):
        return gone(pod, seen, is_deleted=True)
    if job_of(now) == job_of(pod):
        return None
    return PodGone(seen.member, seen.uid, f"its label {JOB} was taken away", may_run_on=True)
