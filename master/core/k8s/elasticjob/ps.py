"""ElasticJobs with the role ps, called PS jobs (docs/how-to/parameter-servers.md): their validation and their JobSpec.

Each rank index has a Service `<job>-<role>-<rank index>`, which leads to the member that has the rank index. So the
addresses follow from the document alone, before there is a pod, and never change. Edits that would change them while
the job trains are refused: the variables are spread over a fixed number of parameter servers, and these accept only the
members that they knew at their start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.pods import ps_resources
from outrider.master.core.k8s.pods.addresses import port_of
from outrider.master.core.k8s.values.field_errors import forbidden, invalid, required
from outrider.master.core.k8s.values.fields import entries, mapping, whole
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
"""Roles of a PS job."""
COMPARES, TORCHS = "it compares members of one all-reduce group", "it works with torch only"
REFUSED = {
    "nodeCheck.enabled": COMPARES,
    "nodeCheck.excludeStragglers": COMPARES,
    "elasticData": TORCHS,
    "keepGlobalBatch": TORCHS,
    "requireResume": TORCHS,
    "migrationDir": TORCHS,
    "checkpointMemory": TORCHS,
    "saveSignal": "only the chief saves, every few steps",
    "adopts": "its members need Services, which the pods of another controller do not have",
}
"""Fields of spec that a PS job must not set, with the reason: an ignored field would be noticed hours later."""
ONE_AT_MOST = {
    "nprocPerNode": "each member is one process",
    "nodeUnit": "its members form no all-reduce group",
}
NOT_FOR_PS = "not supported in a job with parameter servers"
NOTES = {
    NODE_CHECK: COMPARES,
    ELASTIC_DATA: TORCHS,
    KEEP_GLOBAL_BATCH: TORCHS,
    REQUIRE_RESUME: TORCHS,
    MIGRATION_DIR: TORCHS,
    CHECKPOINT_MEMORY: TORCHS,
    SAVE_SIGNAL: REFUSED["saveSignal"],
    CHAOS: "it arms by rank index, and each role has its own; use outrider chaos FAULT --pod NAME for one pod",
}
"""Annotations that a PS job must not set, with the reason."""


def is_one(job: Document) -> bool:
    """Whether the job is a PS job."""
    return PS in roles_of(job)


# -- meaning ------------------------------------------------------------------------------------------------------
def spec_of(job: Document) -> JobSpec:
    """The core's spec of any job, a PS job or not."""
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
    """Paths of the containers for which the user has set TF_CONFIG."""
    for role, value in mapping(mapping(job.get("spec")).get("replicaSpecs")).items():
        pod = mapping(mapping(mapping(value).get("template")).get("spec"))
        for number, container in enumerate(entries(pod.get("containers"))):
            if any(mapping(entry).get("name") == "TF_CONFIG" for entry in entries(mapping(container).get("env"))):
                yield f"spec.replicaSpecs.{role}.template.spec.containers[{number}].env"


# -- validation ---------------------------------------------------------------------------------------------------
def objections(job: Document) -> Iterator[str]:
    """Field errors of a PS job, and of other jobs with a role of PS jobs."""
    spec, roles = mapping(job.get("spec")), roles_of(job)
    yield from ps_resources.objections(job)
    if PS not in roles:
        for role in (CHIEF, EVALUATOR):
            if role in roles:
                yield required(f"spec.replicaSpecs.{PS}", f"only jobs with parameter servers have the role {role}")
        return
    if "master" in roles:
        yield forbidden("spec.replicaSpecs.master", f"a job with parameter servers has a {CHIEF} instead of a master")
    yield from _sizes(roles)
    yield from _fields(spec)
    notes = mapping(mapping(job.get("metadata")).get("annotations"))
    for note, why in NOTES.items():
        if notes.get(note):
            yield forbidden(f"metadata.annotations[{note}]", f"{NOT_FOR_PS}: {why}")


def _sizes(roles: dict[str, Document]) -> Iterator[str]:
    for role, why in (
        (CHIEF, "one chief restores and saves for all"),
        (EVALUATOR, "one evaluator evaluates the checkpoints"),
    ):
        if role in roles and set(sizes(roles[role])) != {1}:
            yield invalid(f"spec.replicaSpecs.{role}.replicas", max(sizes(roles[role])), f"must be 1; {why}")
    least, most, desired = sizes(roles[PS])
    if not least == most == desired:
        yield invalid(
            f"spec.replicaSpecs.{PS}.replicas",
            desired,
            f"must be equal to minReplicas ({least}) and maxReplicas ({most}), because the variables are spread over a "
            f"fixed number of parameter servers",
        )


def _fields(spec: Document) -> Iterator[str]:
    for path, why in REFUSED.items():
        field, _dot, inner = path.partition(".")
        value = mapping(spec.get(field)).get(inner) if inner else spec.get(field)
        if value not in (None, False):
            yield forbidden(f"spec.{path}", f"{NOT_FOR_PS}: {why}")
    for field, why in ONE_AT_MOST.items():
        if (whole(spec.get(field)) or 1) > 1:
            yield invalid(f"spec.{field}", spec[field], f"must be 1 in a job with parameter servers: {why}")
    if (whole(spec.get("spares")) or 0) > 0:
        yield invalid("spec.spares", spec["spares"], "must be 0 in a job with parameter servers, which has no spares")
    policy = mapping(spec.get("scaling")).get("policy")
    if policy in elasticjob_scaling.OWN:
        yield invalid("spec.scaling.policy", policy, f"{NOT_FOR_PS}, whose size only the user sets")


def changes(job: Document, old: Document) -> Iterator[str]:
    """Field errors for edits that the running members could not follow."""
    roles, before = roles_of(job), roles_of(old)
    if PS not in roles and PS not in before:
        return
    for role in ROLES:
        if (role in roles) != (role in before):
            why = "a role cannot be added or removed, because members know each other from their start"
            yield forbidden(f"spec.replicaSpecs.{role}", why)
    if PS in roles and PS in before and sizes(roles[PS])[2] != sizes(before[PS])[2]:
        yield forbidden(
            f"spec.replicaSpecs.{PS}.replicas",
            f"field is immutable; the variables are spread over {sizes(before[PS])[2]} parameter servers",
        )
    most, known = (sizes(each.get(str(WORKER), {}))[1] for each in (roles, before))
    if most > known and not mapping(old.get("spec")).get("suspend"):
        yield invalid(
            f"spec.replicaSpecs.{WORKER}.maxReplicas",
            most,
            f"must be at most {known} while the job runs, because the parameter servers accept only that many workers; "
            f"set maxReplicas from the start, or set spec.suspend to true first",
        )
