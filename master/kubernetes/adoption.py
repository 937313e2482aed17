"""Adopts other controllers' pods: creates an ElasticJob for their job when its first pod is seen.

If two replicas try, or two pods are seen at once, one ElasticJob is created, because its name is then taken. The size
of the owner and the annotations of its pods are read in `outrider.master.core.k8s`.
"""

from __future__ import annotations

import logging

from outrider.master.core.k8s.elasticjob import adopted as elasticjob_adopted
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.pods.observe import is_over
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.names import MEMBER, Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.fence import name_of
from outrider.master.kubernetes.owner_chain import owners_of
from outrider.master.kubernetes.status_writer import path_of

log = logging.getLogger("adoption")


def is_adoptable(pod: Document) -> bool:
    """Whether the pod was not made for an ElasticJob and is neither over nor being deleted."""
    return MEMBER not in mapping(pod["metadata"].get("labels")) and is_live(pod)


def is_live(pod: Document) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and not is_over(pod)


async def adopt_or_log(api: Api, pod: Document, limits: Limits) -> None:
    """Adopts the pod's owner, or logs why it cannot be adopted."""
    try:
        await adopt(api, pod, limits)
    except (ApiError, ValueError) as error:
        log.warning("%s is not adopted: %s", name_of("Pod", pod), error)
    except Exception:  # the owner's document may have any content
        log.exception("%s is not adopted: reading its owners failed (a bug in Outrider)", name_of("Pod", pod))


async def adopt(api: Api, pod: Document, limits: Limits = USUAL) -> None:
    """Creates the ElasticJob of the pod's owner.

    Raises ValueError if the annotations contradict the owner, ApiError if the API server refuses or is away.
    """
    owner = await top_owner(api, pod)
    job = job_for(owner, pod, limits)
    try:
        await api.create(path_of(job["metadata"]["namespace"]), job)
        log.info("adopted %s %s", owner["kind"], owner["metadata"]["name"])
    except ApiError as error:
        if not error.is_conflict:
            raise


def job_for(owner: Document, pod: Document, limits: Limits = USUAL) -> Document:
    """The ElasticJob for this owner. Raises ValueError if the annotations contradict the owner."""
    size = owners_owner.size_of(owner, pod)
    if size.max > limits.members:
        raise ValueError(
            f"{owner['kind']} {owner['metadata']['name']} may have {size.max} pods: must not be more than the "
            f"{limits.members} members that a job may have here"
        )
    return elasticjob_adopted.adopting(owner, size.replicas, pod, size.min, size.max)


async def top_owner(api: Api, pod: Document) -> Document:
    """The pod's outermost controller of a kind that we can read; the pod itself if there is none."""
    found: Document = {"apiVersion": "v1", "kind": "Pod", **pod}
    async for owner in owners_of(api, pod, pod["metadata"]["namespace"]):
        found = owner
    return found
