"""Other controllers' pods: the ElasticJob that stands for their job is made when the first of its pods is seen.

Two replicas, or two pods seen at once, make it once: its name is taken then. What an owner is asked for, and what its
pods' annotations add, is read in `outrider.master.core.k8s`.
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
    """It is no ElasticJob's own, and goes on."""
    return MEMBER not in mapping(pod["metadata"].get("labels")) and goes_on(pod)


def goes_on(pod: Document) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and not is_over(pod)


async def adopt_or_say(api: Api, pod: Document, limits: Limits) -> None:
    """Why not is in the log."""
    try:
        await adopt(api, pod, limits)
    except (ApiError, ValueError) as error:
        log.warning("%s is in no job: %s", name_of("Pod", pod), error)
    except Exception:  # its owner's document may be anything
        log.exception("%s is in no job: its owners could not be read (a bug of ours)", name_of("Pod", pod))


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
