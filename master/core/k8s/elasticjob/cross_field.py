"""What a schema cannot say of the fields of an ElasticJob: sentences that begin with the path of a field.

The document fits the schema (`k8s.elasticjob.schema`), but for durations and amounts of memory, which may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from outrider.master.core import quantities
from outrider.master.core.checkpoints import save_signal
from outrider.master.core.k8s.elasticjob import metrics as elasticjob_metrics
from outrider.master.core.k8s.elasticjob import rules as elasticjob_rules
from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from outrider.master.core.k8s.elasticjob.spec import HANG, RECOVERY
from outrider.master.core.k8s.values import durations
from outrider.master.core.k8s.values.fields import mapping, shown
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.replica_specs import ROLES, has_master, roles_of, sizes
from outrider.master.core.spec import MASTER, WORKER

POD_NAME = 63
"""Characters: a pod's name is its host name too."""
ID_DIGITS = 5
_SIZES = ("replicas", "minReplicas", "maxReplicas")
_RESTARTS = ("OnFailure", "Never")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def validate(job: Document, old: Document | None = None, limits: Limits = USUAL) -> list[str]:
    """What is wrong with it: sentences that begin with the path of a field; none where it can be run."""
    spec = mapping(job.get("spec"))
    said = list(_name(job) if spec.get("adopts") is None else _adoption(spec))
    said += _replica_specs(spec, limits.members)
    said += _together(spec, limits.members)
    said += _save_signal(spec)
    said += _recovery(mapping(spec.get("recovery")))
    said += elasticjob_rules.objections(mapping(spec.get("recovery")), "spec.recovery", limits.verdicts)
    said += elasticjob_metrics.objections(spec.get("metrics"), "spec.metrics", limits.verdicts)
    said += _scaling(spec)
    if old is not None:
        said += _changes(spec, mapping(old.get("spec")))
    return said


def _name(job: Document) -> Iterator[str]:
    name = str(mapping(job.get("metadata")).get("name") or "")
    roles = roles_of(job)
    longest = max((role for role in roles if role in ROLES), key=len, default=WORKER)
    length = len(f"{name}-{longest}-") + ID_DIGITS
    if length > POD_NAME:
        yield (
            f"metadata.name: with '-{longest}-' and an id of up to {ID_DIGITS} digits it has {length} characters, and "
            f"the name of a pod may have {POD_NAME}"
        )
    served = next((role for role in ("ps", MASTER) if role in roles), "")
    if served and name and not _DNS_LABEL.fullmatch(name):
        yield (
            f"metadata.name: {name} begins the names of Services, because there is a role {served}: it must begin "
            f"with a lower-case letter and may have only lower-case letters, digits and '-'"
        )


def _adoption(spec: Document) -> Iterator[str]:
    for role, value in mapping(spec.get("replicaSpecs")).items():
        if mapping(value).get("template") is not None:
            yield (
                f"spec.replicaSpecs.{role}.template: a job that adopts the pods of another owner makes none itself; "
                f"leave out template or adopts"
            )


def _replica_specs(spec: Document, most: int) -> Iterator[str]:
    specs = spec.get("replicaSpecs")
    if not specs:
        yield "spec.replicaSpecs: it is missing; it says by role which pods to run, as worker: {replicas, template}"
        return
    known: dict[str, str] = {}
    for role, value in specs.items():
        lower, path = str(role).lower(), f"spec.replicaSpecs.{role}"
        if lower not in ROLES:
            yield f"{path}: there is no such role; there are {', '.join(ROLES)}"
            continue
        if lower in known:
            yield f"{path}: it is the role {known[lower]} once more, in other letters"
        known[lower] = str(role)
        yield from _role(path, mapping(value), spec, most)
        if lower == MASTER and set(sizes(mapping(value))) != {1}:
            yield f"{path}.replicas: {max(sizes(mapping(value)))} must be 1; there is one member with rank index 0"
    if WORKER not in known and not has_master({"spec": spec}) and all(str(role).lower() in ROLES for role in specs):
        yield f"spec.replicaSpecs.{WORKER}: it is missing; every job has workers"


def _role(path: str, role: Document, spec: Document, most: int) -> Iterator[str]:
    yield from _role_sizes(path, role, spec.get("nodeUnit") or 1, has_master({"spec": spec}))
    for field in _SIZES:
        if (size := role.get(field) or 0) > most:
            yield f"{path}.{field}: {size} is more than the {most} members that a job may have here"
    most_memory = role.get("maxMemory")
    if most_memory is not None:
        yield from _memory(f"{path}.maxMemory", most_memory)
    if spec.get("adopts") is None:
        yield from _template(f"{path}.template", role.get("template"), role.get("restartPolicy") is not None)


def _role_sizes(path: str, role: Document, unit: int, has_master: bool) -> Iterator[str]:
    least, most, wanted = sizes(role)
    given = {field for field in _SIZES if role.get(field) is not None}
    if {"minReplicas", "maxReplicas"} <= given and least > most:
        yield f"{path}.minReplicas: {least} is more than maxReplicas {most}"
    elif wanted < least:
        yield f"{path}.replicas: {wanted} is less than minReplicas {least}"
    elif wanted > most:
        yield f"{path}.replicas: {wanted} is more than maxReplicas {most}"
    if path.lower().endswith(f".{WORKER}") and unit > 1:
        for field in _SIZES:
            if field in given and (role[field] + has_master) % unit:
                members = f"{role[field]}, and the master," if has_master else f"{role[field]}"
                yield f"{path}.{field}: {members} is no multiple of nodeUnit {unit}"


def _together(spec: Document, most: int) -> Iterator[str]:
    spares = spec.get("spares") or 0
    of_roles = [max(sizes(role)) for role in roles_of({"spec": spec}).values()]
    if max(of_roles, default=0) <= most < (together := sum(of_roles) + spares):
        yield f"spec.replicaSpecs: roles and spares together may be {together} members, and a job may have {most} here"


def _template(path: str, template: object, has_own_policy: bool) -> Iterator[str]:
    pod = mapping(mapping(template).get("spec"))
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        yield f"{path}.spec.containers: there is none, and the first one is the trainer"
        return
    policy = None if has_own_policy else pod.get("restartPolicy")  # the role's is above it
    if policy is not None and policy not in (*_RESTARTS, "Always"):
        yield f"{path}.spec.restartPolicy: {shown(policy)} is none; it may be {' or '.join(_RESTARTS)}"
    elif policy == "Always":
        yield (
            f"{path}.spec.restartPolicy: {shown(policy)} would start a trainer again that has succeeded; it may be "
            f"{' or '.join(_RESTARTS)}"
        )
    for number, container in enumerate(containers):
        at = f"{path}.spec.containers[{number}]"
        if not isinstance(container, dict):
            yield f"{at}: it must be an object with name and image"
            continue
        for field in ("name", "image"):
            if not isinstance(container.get(field), str) or not container[field]:
                yield f"{at}.{field}: it is missing"
        yield from _container_memory(at, mapping(container.get("resources")))


def _container_memory(at: str, resources: Document) -> Iterator[str]:
    amounts = {kind: mapping(resources.get(kind)).get("memory") for kind in ("requests", "limits")}
    wrong = False
    for kind, amount in amounts.items():
        if amount is not None:
            said = list(_memory(f"{at}.resources.{kind}.memory", amount))
            wrong = wrong or bool(said)
            yield from said
    if not wrong and None not in amounts.values():
        requested, limit = (quantities.parsed(amounts[kind]) or 0 for kind in ("requests", "limits"))
        if requested > limit:
            yield (f"{at}.resources.requests.memory: {amounts['requests']} is more than the limit {amounts['limits']}")


def _memory(path: str, amount: object) -> Iterator[str]:
    found = quantities.parsed(amount)
    if found is None:
        yield f"{path}: {shown(amount)} is no amount of memory; write it as 512Mi or 16Gi"
    elif found <= 0:
        yield f"{path}: {shown(amount)} must be more than 0"


def _save_signal(spec: Document) -> Iterator[str]:
    if (asked := spec.get("saveSignal")) is not None:
        try:
            save_signal.parsed(asked)
        except ValueError as error:
            yield f"spec.saveSignal: {error}"


def _recovery(recovery: Document) -> Iterator[str]:
    for field in RECOVERY:
        yield from _duration(f"spec.recovery.{field}", recovery.get(field))
    for field in HANG:
        limit = mapping(recovery.get("hang")).get(field)
        yield from _duration(f"spec.recovery.hang.{field}", limit)
        if durations.parsed(limit) == 0:
            yield f"spec.recovery.hang.{field}: 0 would take every job for hung; enabled: false looks for no hangs"
    silent, replace = (durations.parsed(recovery.get(field)) for field in ("silentAfter", "replaceAfter"))
    if silent == 0:
        yield "spec.recovery.silentAfter: 0 would leave out every member at once; it must be more than 0"
    if silent is not None and replace is not None and replace < silent:
        yield "spec.recovery.replaceAfter: it is less than silentAfter, and a member is replaced after it was silent"


def _duration(path: str, value: object) -> Iterator[str]:
    if value is not None and durations.parsed(value) is None:
        yield f"{path}: {shown(value)} is no duration; write {durations.ALLOWED}"


def _scaling(spec: Document) -> Iterator[str]:
    worker = roles_of({"spec": spec}).get(WORKER, {})
    least, most, _wanted = sizes(worker)
    given = worker.get("minReplicas") is not None, worker.get("maxReplicas") is not None
    yield from elasticjob_scaling.objections(mapping(spec.get("scaling")), (least, most), given)


def _changes(spec: Document, old: Document) -> Iterator[str]:
    if spec.get("adopts") != old.get("adopts"):
        yield "spec.adopts: it cannot be changed; a job keeps the owner of its pods"
    if spec.get("nprocPerNode") != old.get("nprocPerNode") and not old.get("suspend"):
        yield (
            "spec.nprocPerNode: it cannot be changed while the job runs, because its pods were made with "
            f"{shown(old.get('nprocPerNode'))}; set spec.suspend to true first"
        )
