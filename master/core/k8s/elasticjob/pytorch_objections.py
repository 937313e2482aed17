"""Validation of the fields that an ElasticJob shares with PyTorchJobs, and remarks on those that are ignored.

If such a field and an ElasticJob's own field contradict each other, the job is refused and the user must remove one.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core.k8s.values.field_errors import forbidden, invalid
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
"""Policies of `spec.scaling` that never change the size; the first two are the default."""


def objections(job: Document) -> Iterator[str]:
    """Field errors for fields that contradict each other."""
    spec = mapping(job.get("spec"))
    policy, enabled, scaling = spec.get(POLICY), spec.get(ENABLE), mapping(spec.get("scaling")).get("policy")
    if spec.get(THEIR_ROLES) is not None and spec.get(OUR_ROLES) is not None:
        yield forbidden(f"spec.{THEIR_ROLES}", f"has the same meaning as spec.{OUR_ROLES}; remove one of the two")
    yield from _contradictions(spec, mapping(policy))
    if enabled is False and scaling not in BY_HAND:
        yield invalid(
            f"spec.{ENABLE}", False, f"keeps the job's size, but spec.scaling.policy {scaling} changes it; remove one"
        )
    if enabled is True and scaling == "manual":
        yield invalid(
            f"spec.{ENABLE}", True, "makes the job find its own size, but spec.scaling.policy is manual; remove one"
        )


def in_their_words(objection: str, job: Document) -> str:
    """The field error with the path of `elasticPolicy` if the user set the field there."""
    policy, path = mapping(mapping(job.get("spec")).get(POLICY)), objection.partition(":")[0]
    field = path.rpartition(".")[2]
    theirs = next((name for name, own in {**dict.fromkeys(SIZES), **COUNTS}.items() if field in (own, name)), "")
    is_size = path.lower() == f"spec.{OUR_ROLES}.{WORKER}.{field}".lower()
    is_theirs = policy.get(theirs) is not None and (is_size or path == f"spec.{field}")
    return objection.replace(path, f"spec.{POLICY}.{theirs}", 1) if is_theirs else objection


def _contradictions(spec: Document, policy: Document) -> Iterator[str]:
    ours = {theirs: (f"spec.{own}", spec.get(own)) for theirs, own in COUNTS.items()}
    for role, value in (replica_specs_of(spec) or {}).items():
        if str(role).lower() == WORKER:
            ours |= {field: (f"spec.{OUR_ROLES}.{role}.{field}", mapping(value).get(field)) for field in SIZES}
    for field, (path, value) in ours.items():
        if None not in (value, policy.get(field)) and value != policy[field]:
            yield invalid(
                f"spec.{POLICY}.{field}", policy[field], f"must be equal to {path} ({shown(value)}), or remove one"
            )


# -- what is ignored ------------------------------------------------------------------------------------------------
def remarks(job: Document) -> tuple[str, ...]:
    """Messages for the user about fields that are ignored, with the reason."""
    spec = mapping(job.get("spec"))
    policy = mapping(spec.get(POLICY))
    ignored = []
    if given := [field for field in RENDEZVOUS if policy.get(field) is not None]:
        ignored.append(
            f"spec.{POLICY}.{', '.join(given)}: ignored: the master gives the ranks their rendezvous address, so no "
            f"etcd is needed."
        )
    if policy.get("metrics") is not None:
        ignored.append(
            f"spec.{POLICY}.metrics: ignored: with spec.scaling.policy: throughput a job finds its own size."
        )
    if unknown := sorted(set(map(str, policy)) - {*FOLLOWED, *RENDEZVOUS, "metrics"}):
        ignored.append(f"spec.{POLICY}.{', '.join(unknown)}: ignored: an ElasticJob has no such field.")
    if spec.get(ENABLE) is True and not has_room(policy):
        ignored.append(f"spec.{ENABLE}: ignored: it needs spec.{POLICY} with minReplicas less than maxReplicas.")
    return tuple(ignored)
