"""Other controllers' pods: the ElasticJob that stands for their job is made when the first of its pods is seen.

Two replicas, or two pods seen at once, make it once: its name is taken then. What an owner is asked for, and what its
pods' annotations add, is read in `outrider.master.core.k8s`.
"""

from __future__ import annotations

import logging

from outrider.master.core.k8s.elasticjob import adopted as elasticjob_adopted
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.owner_chain import owners_of
from outrider.master.kubernetes.status_writer import path_of

log = logging.getLogger("adoption")


async def adopt(api: Api, pod: Document, limits: Limits = USUAL) -> None:
    """Raises ValueError where annotations and owner cannot both be meant, ApiError where the server does not help."""
    owner = await top_owner(api, pod)
    job = job_for(owner, pod, limits)
    try:
        await api.create(path_of(job["metadata"]["namespace"]), job)
        log.info("%s %s is adopted", owner["kind"], owner["metadata"]["name"])
    except ApiError as error:
        if not error.is_conflict:
            raise


def job_for(owner: Document, pod: Document, limits: Limits = USUAL) -> Document:
    """The ElasticJob that stands for the owner. Raises ValueError where annotations and owner cannot both be meant."""
    size = owners_owner.size_of(owner, pod)
    if size.max > limits.members:
        raise ValueError(
            f"{owner['kind']} {owner['metadata']['name']} may have {size.max} pods, and a job may have "
            f"{limits.members} members here"
        )
    return elasticjob_adopted.adopting(owner, size.replicas, pod, size.min, size.max)


async def top_owner(api: Api, pod: Document) -> Document:
    """The outermost controller that we know how to read; the pod itself where there is none."""
    found: Document = {"apiVersion": "v1", "kind": "Pod", **pod}
    async for owner in owners_of(api, pod, pod["metadata"]["namespace"]):
        found = owner
    return found
