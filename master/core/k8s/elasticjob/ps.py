"""An ElasticJob with the role ps is a PS job: its errors, and the spec of its core.

For its user: docs/how-to/parameter-servers.md.

Its members are found by name: `<job>-<role>-<rank index>`, a Service behind which is whoever holds the rank index. So
the addresses follow from the document alone, before there is a pod, and stay for the job's whole life. What would
change them while somebody trains is refused: variables are spread over the parameter servers that there are, and these
talk to nobody whom they were not told of at their start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.pods import ps_resources
from outrider.master.core.k8s.pods.addresses import port_of
from outrider.master.core.k8s.values.fields import entries, mapping, shown, whole
from outrider.master.core.k8s.values.names import (
    CHAOS,
    CHECKPOINT_MEMORY,
    ELASTIC_DATA,
    KEEP_GLOBAL_BATCH,
    MIGRATION_DIR,
    NODE_CHECK,
    REQUIRE_RESUME,
    SAVE_SIGNAL,
    Document,
)
from outrider.master.core.k8s.values.replica_specs import roles_of, sizes
from outrider.master.core.spec import WORKER, JobSpec
from outrider.wire.ids import Role

PS, CHIEF, EVALUATOR = "ps", "chief", "evaluator"
ROLES = (PS, CHIEF, str(WORKER), EVALUATOR)
COMPARES, TORCHS = "it compares members of one world", "it is torch's"
REFUSED = {
    "nodeCheck.enabled": COMPARES,
    "nodeCheck.excludeStragglers": COMPARES,
    "elasticData": TORCHS,
    "keepGlobalBatch": TORCHS,
    "requireResume": TORCHS,
    "migrationDir": TORCHS,
    "checkpointMemory": TORCHS,
    "saveSignal": "the chief alone saves, every few steps",
    "adopts": "its members have addresses that we make, and so have the pods of no other controller",
}
"""Fields of spec that mean nothing there, and why: what would be ignored in silence would be found out hours later."""
ONE_AT_MOST = {
    "nprocPerNode": "each member is one process",
    "nodeUnit": "members form no world",
}
NOTES = {
    NODE_CHECK: COMPARES,
    ELASTIC_DATA: TORCHS,
    KEEP_GLOBAL_BATCH: TORCHS,
    REQUIRE_RESUME: TORCHS,
    MIGRATION_DIR: TORCHS,
    CHECKPOINT_MEMORY: TORCHS,
    SAVE_SIGNAL: REFUSED["saveSignal"],
    CHAOS: "it arms by rank index, of which each role has its own; outrider chaos FAULT --pod NAME breaks a pod",
}
"""The same of annotations of the job."""


def is_one(job: Document) -> bool:
    return PS in roles_of(job)


# -- what its core is told ----------------------------------------------------------------------------------------
def spec_of(job: Document) -> JobSpec:
    """What the core is told of a job of either kind."""
    spec = elasticjob_spec.spec_of(job)
    if not is_one(job):
        return spec
    roles = roles_of(job)
    return replace(
        spec,
        ps=_addresses(job, PS, sizes(roles[PS])[2]),
        workers=_addresses(job, str(WORKER), spec.max_members),
        chief=next(iter(_addresses(job, CHIEF, int(CHIEF in roles))), ""),
        has_evaluator=EVALUATOR in roles,
        tf_config_from=" and ".join(_tf_configs(job)),
        ps_resources=tuple(ps_resources.in_words(job, index) for index in range(sizes(roles[PS])[2])),
        limits=tuple(elasticjob_spec.limits(job, Role(role)) for role in ROLES if role in roles),
    )


def _addresses(job: Document, role: str, count: int) -> tuple[str, ...]:
    return tuple(f"{job['metadata']['name']}-{role}-{index}:{port_of(Role(role))}" for index in range(count))


def _tf_configs(job: Document) -> Iterator[str]:
    """Where the user has set it for his container himself."""
    for role, value in mapping(mapping(job.get("spec")).get("replicaSpecs")).items():
        pod = mapping(mapping(mapping(value).get("template")).get("spec"))
        for number, container in enumerate(entries(pod.get("containers"))):
            if any(mapping(entry).get("name") == "TF_CONFIG" for entry in entries(mapping(container).get("env"))):
                yield f"spec.replicaSpecs.{role}.template.spec.containers[{number}].env"


# -- what is wrong with it ----------------------------------------------------------------------------------------
def objections(job: Document) -> Iterator[str]:
    """Sentences that begin with the path of a field."""
    spec, roles = mapping(job.get("spec")), roles_of(job)
    yield from ps_resources.objections(job)
    if PS not in roles:
        for role in (CHIEF, EVALUATOR):
            if role in roles:
                yield (
                    f"spec.replicaSpecs.{PS}: it is missing; {role} is a role of jobs with parameter servers, and all "
                    f"members of other jobs are workers"
                )
        return
    if "master" in roles:
        yield f"spec.replicaSpecs.master: a job with parameter servers has none; who leads it is its {CHIEF}"
    yield from _sizes(roles)
    yield from _fields(spec)
    notes = mapping(mapping(job.get("metadata")).get("annotations"))
    for note, why in NOTES.items():
        if notes.get(note):
            yield f"metadata.annotations[{note}]: it is not for a job with parameter servers: {why}"


def _sizes(roles: dict[str, Document]) -> Iterator[str]:
    for role, what in ((CHIEF, "who restores and saves for all"), (EVALUATOR, "who evaluates checkpoints")):
        if role in roles and set(sizes(roles[role])) != {1}:
            yield f"spec.replicaSpecs.{role}.replicas: {max(sizes(roles[role]))} must be 1; there is one {what}"
    least, most, wanted = sizes(roles[PS])
    if not least == most == wanted:
        yield (
            f"spec.replicaSpecs.{PS}.replicas: it is {wanted}, with {least} to {most} allowed; variables are spread "
            f"over a fixed number of parameter servers, so that all three are the same"
        )


def _fields(spec: Document) -> Iterator[str]:
    for path, why in REFUSED.items():
        field, _dot, inner = path.partition(".")
        value = mapping(spec.get(field)).get(inner) if inner else spec.get(field)
        if value not in (None, False):
            yield f"spec.{path}: it is not for a job with parameter servers: {why}"
    for field, why in ONE_AT_MOST.items():
        if (whole(spec.get(field)) or 1) > 1:
            yield f"spec.{field}: {shown(spec[field])} must be 1 in a job with parameter servers: {why}"
    if (whole(spec.get("spares")) or 0) > 0:
        yield f"spec.spares: {shown(spec['spares'])} must be 0 in a job with parameter servers: no member stands by"
    policy = mapping(spec.get("scaling")).get("policy")
    if policy in elasticjob_scaling.OWN:
        yield f"spec.scaling.policy: {policy} is not for a job with parameter servers; it has the size that you say"


def changes(job: Document, old: Document) -> Iterator[str]:
    """What may not become of a job that its members were told of."""
    roles, before = roles_of(job), roles_of(old)
    if PS not in roles and PS not in before:
        return
    for role in ROLES:
        if (role in roles) != (role in before):
            yield f"spec.replicaSpecs.{role}: it cannot come or go; the members were told who there is at their start"
    if PS in roles and PS in before and sizes(roles[PS])[2] != sizes(before[PS])[2]:
        yield (
            f"spec.replicaSpecs.{PS}.replicas: it cannot be changed; the variables are spread over "
            f"{sizes(before[PS])[2]} parameter servers"
        )
    most, known = (sizes(each.get(str(WORKER), {}))[1] for each in (roles, before))
    if most > known and not mapping(old.get("spec")).get("suspend"):
        yield (
            f"spec.replicaSpecs.{WORKER}.maxReplicas: with {most} there may be workers whom the parameter servers were "
            f"not told of; they know {known}. Give maxReplicas from the start, or set spec.suspend to true first"
        )
