"""What is wrong with the fields that an ElasticJob shares with PyTorchJobs, and which are not followed.

Where these and our own say something, and not the same, the user is asked which; nobody guesses.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core.k8s.values.fields import mapping, shown
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.pytorch_fields import (
    COUNTS,
    ENABLE,
    FOLLOWED,
    OUR_ROLES,
    POLICY,
    SIZES,
    THEIR_ROLES,
    has_room,
    replica_specs_of,
)
from outrider.master.core.spec import WORKER

RENDEZVOUS = ("rdzvBackend", "rdzvEndpoint", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf", "standalone")
BY_HAND = (None, "none", "manual")
"""Policies of `spec.scaling` by which nothing changes the size; the first two are what nobody has said."""


def objections(job: Document) -> Iterator[str]:
    """Sentences that begin with the path of a field."""
    spec = mapping(job.get("spec"))
    policy, enabled, scaling = spec.get(POLICY), spec.get(ENABLE), mapping(spec.get("scaling")).get("policy")
    if spec.get(THEIR_ROLES) is not None and spec.get(OUR_ROLES) is not None:
        yield f"spec.{THEIR_ROLES}: there is {OUR_ROLES} too, which means the same; give one of them"
    yield from _contradictions(spec, mapping(policy))
    if enabled is False and scaling not in BY_HAND:
        yield f"spec.{ENABLE}: false keeps the job's size, and spec.scaling.policy {scaling} changes it; leave one out"
    if enabled is True and scaling == "manual":
        yield f"spec.{ENABLE}: true has the job find its own size, and spec.scaling.policy is manual; leave one out"


def in_their_words(objection: str, job: Document) -> str:
    """It begins with the path of a field of ours; with that of the user's own where he has written that."""
    policy, path = mapping(mapping(job.get("spec")).get(POLICY)), objection.partition(":")[0]
    field = path.rpartition(".")[2]
    theirs = next((name for name, own in {**dict.fromkeys(SIZES), **COUNTS}.items() if field in (own, name)), "")
    is_size = path.lower() == f"spec.{OUR_ROLES}.{WORKER}.{field}".lower()
    is_said = policy.get(theirs) is not None and (is_size or path == f"spec.{field}")
    return objection.replace(path, f"spec.{POLICY}.{theirs}", 1) if is_said else objection


def _contradictions(spec: Document, policy: Document) -> Iterator[str]:
    ours = {theirs: (f"spec.{own}", spec.get(own)) for theirs, own in COUNTS.items()}
    for role, value in (replica_specs_of(spec) or {}).items():
        if str(role).lower() == WORKER:
            ours |= {field: (f"spec.{OUR_ROLES}.{role}.{field}", mapping(value).get(field)) for field in SIZES}
    for field, (path, value) in ours.items():
        if None not in (value, policy.get(field)) and value != policy[field]:
            yield f"spec.{POLICY}.{field}: it is {shown(policy[field])}, and {path} is {shown(value)}; leave one out"


# -- what is not needed ---------------------------------------------------------------------------------------------
def remarks(job: Document) -> tuple[str, ...]:
    """What is passed over, and why: sentences for the user."""
    spec = mapping(job.get("spec"))
    policy = mapping(spec.get(POLICY))
    said = []
    if given := [field for field in RENDEZVOUS if policy.get(field) is not None]:
        said.append(
            f"spec.{POLICY}.{', '.join(given)}: not needed: the master tells the ranks where to meet, so there is no "
            f"etcd to run."
        )
    if policy.get("metrics") is not None:
        said.append(
            f"spec.{POLICY}.metrics: not followed: spec.scaling.policy: throughput has a job find its own size."
        )
    if unknown := sorted(set(map(str, policy)) - {*FOLLOWED, *RENDEZVOUS, "metrics"}):
        said.append(f"spec.{POLICY}.{', '.join(unknown)}: not followed: it has no counterpart here.")
    if spec.get(ENABLE) is True and not has_room(policy):
        said.append(
            f"spec.{ENABLE}: not followed: it needs spec.{POLICY} with a minReplicas that is less than maxReplicas."
        )
    return tuple(said)
