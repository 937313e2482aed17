"""Translation of a PyTorchJob's fields in an ElasticJob to the ElasticJob's own fields.

The fields are `elasticPolicy`, `enableElastic` and `pytorchReplicaSpecs`. All other modules read a job as
`in_our_words` returns it, so each field has one meaning. The stored document stays as the user wrote it, except that
`pytorchReplicaSpecs` becomes `replicaSpecs`, because `kubectl scale` reads the workers there.
`k8s.elasticjob.pytorch_objections` validates these fields.
"""

from __future__ import annotations

from outrider.master.core.k8s.values.fields import mapping, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.spec import THROUGHPUT, WORKER

POLICY, ENABLE, THEIR_ROLES, OUR_ROLES = "elasticPolicy", "enableElastic", "pytorchReplicaSpecs", "replicaSpecs"
SIZES = ("minReplicas", "maxReplicas")
COUNTS = {"nProcPerNode": "nprocPerNode", "maxRestarts": "maxRestarts"}
"""Fields of `elasticPolicy` and the fields of `spec` with the same meaning."""
FOLLOWED = (*SIZES, *COUNTS)


def in_our_words(job: Document) -> Document:
    """The job with the ElasticJob's own fields added; the same object if it has no fields of a PyTorchJob.

    Translating a translated job changes nothing.
    """
    spec = mapping(job.get("spec"))
    if all(spec.get(field) is None for field in (POLICY, ENABLE, THEIR_ROLES)):
        return job
    policy, enabled = mapping(spec.get(POLICY)), spec.get(ENABLE)
    made = {field: value for field, value in spec.items() if field != THEIR_ROLES}
    made |= {ours: policy[theirs] for theirs, ours in COUNTS.items() if whole(policy.get(theirs)) is not None}
    if (specs := replica_specs_of(spec)) is not None:
        made[OUR_ROLES] = {role: _sized(str(role), value, policy) for role, value in specs.items()}
    scaling = mapping(spec.get("scaling"))
    if enabled is True and scaling.get("policy") in (None, "none") and has_room(policy):
        made["scaling"] = {**scaling, "policy": THROUGHPUT}
    return {**job, "spec": made}


def with_our_roles(spec: Document, is_new: bool) -> None:
    """Moves `pytorchReplicaSpecs` of a spec that is being stored into `replicaSpecs`, where they win."""
    if isinstance(spec.get(THEIR_ROLES), dict) and (not is_new or spec.get(OUR_ROLES) is None):
        own = {str(role).lower(): value for role, value in mapping(spec.get(OUR_ROLES)).items()}
        spec[OUR_ROLES] = own | {str(role).lower(): value for role, value in spec.pop(THEIR_ROLES).items()}


def replica_specs_of(spec: Document) -> Document | None:
    """The replica specs from either field; None if they are not an object."""
    found = spec.get(OUR_ROLES) if spec.get(OUR_ROLES) is not None else spec.get(THEIR_ROLES)
    return found if isinstance(found, dict) else None


def _sized(role: str, value: object, policy: Document) -> object:
    if role.lower() != WORKER or not isinstance(value, dict):
        return value
    return {**value, **{field: policy[field] for field in SIZES if whole(policy.get(field)) is not None}}


def has_room(policy: Document) -> bool:
    """Whether this `elasticPolicy` permits more than one size."""
    least, most = (whole(policy.get(field)) for field in SIZES)
    return least is not None and most is not None and least < most
