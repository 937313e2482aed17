"""Pods that have left the watch, or their job, without being deleted.

The watch shows pods with a job's label. So a pod whose label was removed looks like one that was deleted by force, and
only reading the pod distinguishes the two. The processes of the first must be stopped, or they train beside the next
generation. A label with another value is the same case: the pod's sidecar belongs to the job that the pod was created
for, and the other job never had this pod.
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
    """The job that the pod was created for, by its sidecar's variables; without a sidecar the job of its label."""
    spec = mapping(pod.get("spec"))
    for container in chain(spec.get("containers") or (), spec.get("initContainers") or ()):
        for variable in container.get("env") or () if container.get("name") == SIDECAR_CONTAINER else ():
            if variable.get("name") == "OUTRIDER_JOB" and variable.get("value"):
                name = str(variable["value"]).rpartition("/")[2]
                return JobName(f"{pod['metadata'].get('namespace') or 'default'}/{name}")
    return job_of(pod)


def is_taken_out(pod: Document) -> bool:
    """Whether the pod no longer has the label of the job that it was created for."""
    return job_of(pod) != made_for(pod)


def may_run(pod: Document) -> bool:
    """Whether, when last shown, the pod was not being deleted and was not over."""
    return not pod["metadata"].get("deletionTimestamp") and not is_over(pod)


def missing(before: Iterable[Document], listed: Iterable[Document]) -> list[Document]:
    """Pods of an earlier list that a new list lacks; a broken watch missed their end."""
    there = {pod["metadata"]["uid"] for pod in listed}
    return [pod for pod in before if pod["metadata"]["uid"] not in there and may_run(pod)]


def read_again(pod: Document, seen: PodSeen, now: Document) -> PodGone | None:
    """The core's event for a pod that has disappeared; None if its label is back.

    `now`: the present document of the pod; empty if the pod does not exist.
    """
    metadata = mapping(now.get("metadata"))
    is_the_same = metadata.get("uid") == pod["metadata"].get("uid")
    if not is_the_same or metadata.get("deletionTimestamp") or is_over(now):
        return gone(pod, seen, is_deleted=True)
    if job_of(now) == made_for(pod):
        return None
    label = mapping(metadata.get("labels")).get(JOB)
    became = f"is {label} now" if label else "was removed"
    return PodGone(seen.member, seen.uid, f"its label {JOB} {became}", may_run_on=True)
