"""Pods that the watch shows no more, or as another job's, though nobody was deleting them.

The watch shows what has the label of a job. So a pod whose label was taken away looks like one that was deleted by
force, and only reading it tells the two apart: what runs in the first must be ended, or it trains on beside the next
world. A label with another value is the same: the pod's sidecar speaks for the job that it was made for, and the other
job never had it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from outrider.master.core.events import PodGone, PodSeen
from outrider.master.core.k8s.pods.observe import gone, is_over
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.identity import job_of
from outrider.master.core.k8s.values.names import JOB, SIDECAR_CONTAINER, Document
from outrider.wire.ids import JobName


def made_for(pod: Document) -> JobName | None:
    """The job that its sidecar speaks for; that of its label, where it has no sidecar."""
    spec = mapping(pod.get("spec"))
    for container in chain(spec.get("containers") or (), spec.get("initContainers") or ()):
        for variable in container.get("env") or () if container.get("name") == SIDECAR_CONTAINER else ():
            if variable.get("name") == "OUTRIDER_JOB" and variable.get("value"):
                name = str(variable["value"]).rpartition("/")[2]
                return JobName(f"{pod['metadata'].get('namespace') or 'default'}/{name}")
    return job_of(pod)


def is_taken_out(pod: Document) -> bool:
    """It has not the label of the job that it was made for."""
    return job_of(pod) != made_for(pod)


def may_run(pod: Document) -> bool:
    """As it was shown last, nobody was deleting it, and something in it ran."""
    return not pod["metadata"].get("deletionTimestamp") and not is_over(pod)


def missing(before: Iterable[Document], listed: Iterable[Document]) -> list[Document]:
    """Those of an earlier list that a new one has not: what became of them was in a watch that broke."""
    there = {pod["metadata"]["uid"] for pod in listed}
    return [pod for pod in before if pod["metadata"]["uid"] not in there and may_run(pod)]


def read_again(pod: Document, seen: PodSeen, now: Document) -> PodGone | None:
    """What the core is told of it. `now`: as it reads; empty where it is not there. None: its label is back already."""
    metadata = mapping(now.get("metadata"))
    is_the_same = metadata.get("uid") == pod["metadata"].get("uid")
    if not is_the_same or metadata.get("deletionTimestamp") or is_over(now):
        return gone(pod, seen, is_deleted=True)
    if job_of(now) == made_for(pod):
        return None
    label = mapping(metadata.get("labels")).get(JOB)
    became = f"says {label} now" if label else "was taken away"
    return PodGone(seen.member, seen.uid, f"its label {JOB} {became}", may_run_on=True)
