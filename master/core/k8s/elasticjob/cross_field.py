"""Validation of an ElasticJob beyond its schema, as field errors.

The document fits the schema (`k8s.elasticjob.schema`) except durations and amounts of memory, which may be anything.
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
from outrider.master.core.k8s.values import durations, save_signals
from outrider.master.core.k8s.values.field_errors import (
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from outrider.master.core.k8s.values.fields import mapping, shown
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.replica_specs import ROLES, has_master, roles_of, sizes
from outrider.master.core.spec import MASTER, WORKER

POD_NAME = 63
"""Maximum length of a pod's name in characters: the name is also the host name."""
ID_DIGITS = 5
"""Maximum number of digits of the id in a pod's name."""
_SIZES = ("replicas", "minReplicas", "maxReplicas")
_RESTARTS = ("OnFailure", "Never")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def validate(job: Document, old: Document | None = None, limits: Limits = USUAL) -> list[str]:
    """The field errors of a job; none if the job can be run."""
    spec = mapping(job.get("spec"))
    errors = list(_name(job) if spec.get("adopts") is None else _adoption(spec))
    errors += _replica_specs(spec, limits.members)
    errors += _together(spec, limits.members)
    errors += _save_signal(spec)
    errors += _recovery(mapping(spec.get("recovery")))
    errors += elasticjob_rules.objections(mapping(spec.get("recovery")), "spec.recovery", limits.verdicts)
    errors += elasticjob_metrics.objections(spec.get("metrics"), "spec.metrics", limits.verdicts)
    errors += _scaling(spec)
    if old is not None:
        errors += _changes(spec, mapping(old.get("spec")))
    return errors


def _name(job: Document) -> Iterator[str]:
    name = str(mapping(job.get("metadata")).get("name") or "")
    roles = roles_of(job)
    longest = max((role for role in roles if role in ROLES), key=len, default=WORKER)
    most = POD_NAME - len(f"-{longest}-") - ID_DIGITS
    if len(name) > most:
        yield (
            f"{too_long('metadata.name', most)}: a pod's name adds '-{longest}-' and up to {ID_DIGITS} digits, and may "
            f"have {POD_NAME} characters"
        )
    served = next((role for role in ("ps", MASTER) if role in roles), "")
    if served and name and not _DNS_LABEL.fullmatch(name):
        yield invalid(
            "metadata.name",
            name,
            f"must consist of lower-case letters, digits and '-', start with a letter and end with a letter or digit: "
            f"it begins the names of the Services of role {served}",
        )


def _adoption(spec: Document) -> Iterator[str]:
    for role, value in mapping(spec.get("replicaSpecs")).items():
        if mapping(value).get("template") is not None:
            yield forbidden(
                f"spec.replicaSpecs.{role}.template",
                "a job with spec.adopts creates no pods itself; remove template or spec.adopts",
            )


def _replica_specs(spec: Document, most: int) -> Iterator[str]:
    specs = spec.get("replicaSpecs")
    if not specs:
        yield required("spec.replicaSpecs", "must have the pods of each role, for example worker: {replicas, template}")
        return
    known: dict[str, str] = {}
    for role, value in specs.items():
        lower, path = str(role).lower(), f"spec.replicaSpecs.{role}"
        if lower not in ROLES:
            yield unsupported(path, str(role), ROLES)
            continue
        if lower in known:
            yield f"{duplicate(path, str(role))}: the same role as {known[lower]}; the case of a role is ignored"
        known[lower] = str(role)
        yield from _role(path, mapping(value), spec, most)
        if lower == MASTER and set(sizes(mapping(value))) != {1}:
            most_masters = max(sizes(mapping(value)))
            yield invalid(f"{path}.replicas", most_masters, "must be 1; the master is the member with rank index 0")
    if WORKER not in known and not has_master({"spec": spec}) and all(str(role).lower() in ROLES for role in specs):
        yield required(f"spec.replicaSpecs.{WORKER}", "every job has workers")


def _role(path: str, role: Document, spec: Document, most: int) -> Iterator[str]:
    yield from _role_sizes(path, role, spec.get("nodeUnit") or 1, has_master({"spec": spec}))
    for field in _SIZES:
        if (size := role.get(field) or 0) > most:
            yield invalid(f"{path}.{field}", size, f"must be at most {most}, this installation's limit per job")
    most_memory = role.get("maxMemory")
    if most_memory is not None:
        yield from _memory(f"{path}.maxMemory", most_memory)
    if spec.get("adopts") is None:
        yield from _template(f"{path}.template", role.get("template"), role.get("restartPolicy") is not None)


def _role_sizes(path: str, role: Document, unit: int, has_master: bool) -> Iterator[str]:
    least, most, desired = sizes(role)
    given = {field for field in _SIZES if role.get(field) is not None}
    if {"minReplicas", "maxReplicas"} <= given and least > most:
        yield invalid(f"{path}.minReplicas", least, f"must be less than or equal to maxReplicas ({most})")
    elif desired < least:
        yield invalid(f"{path}.replicas", desired, f"must be greater than or equal to minReplicas ({least})")
    elif desired > most:
        yield invalid(f"{path}.replicas", desired, f"must be less than or equal to maxReplicas ({most})")
    if path.lower().endswith(f".{WORKER}") and unit > 1:
        for field in _SIZES:
            if field in given and (role[field] + has_master) % unit:
                plus = " together with the master" if has_master else ""
                yield invalid(f"{path}.{field}", role[field], f"must be a multiple of nodeUnit ({unit}){plus}")


def _together(spec: Document, most: int) -> Iterator[str]:
    spares = spec.get("spares") or 0
    of_roles = [max(sizes(role)) for role in roles_of({"spec": spec}).values()]
    if max(of_roles, default=0) <= most < (together := sum(of_roles) + spares):
        yield too_many("spec.replicaSpecs", together, most, "members, spares included, in this installation")


def _template(path: str, template: object, has_own_policy: bool) -> Iterator[str]:
    pod = mapping(mapping(template).get("spec"))
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        yield required(f"{path}.spec.containers", "the first container is the trainer")
        return
    policy = None if has_own_policy else pod.get("restartPolicy")  # the role's own takes precedence
    if policy is not None and policy not in (*_RESTARTS, "Always"):
        yield unsupported(f"{path}.spec.restartPolicy", policy, _RESTARTS)
    elif policy == "Always":
        error = unsupported(f"{path}.spec.restartPolicy", policy, _RESTARTS)
        yield f"{error} ({policy} would restart a trainer that has succeeded)"
    for number, container in enumerate(containers):
        at = f"{path}.spec.containers[{number}]"
        if not isinstance(container, dict):
            yield invalid(at, container, "must be an object with name and image")
            continue
        for field in ("name", "image"):
            if not isinstance(container.get(field), str) or not container[field]:
                yield required(f"{at}.{field}")
        yield from _container_memory(at, mapping(container.get("resources")))


def _container_memory(at: str, resources: Document) -> Iterator[str]:
    amounts = {kind: mapping(resources.get(kind)).get("memory") for kind in ("requests", "limits")}
    wrong = False
    for kind, amount in amounts.items():
        if amount is not None:
            errors = list(_memory(f"{at}.resources.{kind}.memory", amount))
            wrong = wrong or bool(errors)
            yield from errors
    if not wrong and None not in amounts.values():
        requested, limit = (quantities.parsed(amounts[kind]) or 0 for kind in ("requests", "limits"))
        if requested > limit:
            why = f"must be less than or equal to memory limit of {amounts['limits']}"
            yield invalid(f"{at}.resources.requests.memory", amounts["requests"], why)


def _memory(path: str, amount: object) -> Iterator[str]:
    found = quantities.parsed(amount)
    if found is None:
        yield invalid(path, amount, "must be an amount of memory such as 512Mi or 16Gi")
    elif found <= 0:
        yield invalid(path, amount, "must be greater than 0")


def _save_signal(spec: Document) -> Iterator[str]:
    if (signal := spec.get("saveSignal")) is not None:
        try:
            save_signal.parsed(signal)
        except ValueError:
            yield save_signals.error("spec.saveSignal", signal)


def _recovery(recovery: Document) -> Iterator[str]:
    for field in RECOVERY:
        yield from _duration(f"spec.recovery.{field}", recovery.get(field))
    for field in HANG:
        limit = mapping(recovery.get("hang")).get(field)
        yield from _duration(f"spec.recovery.hang.{field}", limit)
        if durations.parsed(limit) == 0:
            why = "must be greater than 0; set recovery.hang.enabled: false to disable detection"
            yield invalid(f"spec.recovery.hang.{field}", limit, why)
    silent, replace = (durations.parsed(recovery.get(field)) for field in ("silentAfter", "replaceAfter"))
    if silent == 0:
        yield invalid("spec.recovery.silentAfter", recovery["silentAfter"], "must be greater than 0")
    if silent is not None and replace is not None and replace < silent:
        why = f"must be greater than or equal to silentAfter ({shown(recovery['silentAfter'])})"
        yield invalid("spec.recovery.replaceAfter", recovery["replaceAfter"], why)


def _duration(path: str, value: object) -> Iterator[str]:
    if value is not None and durations.parsed(value) is None:
        yield invalid(path, value, f"must be {durations.ALLOWED}")


def _scaling(spec: Document) -> Iterator[str]:
    worker = roles_of({"spec": spec}).get(WORKER, {})
    least, most, _desired = sizes(worker)
    given = worker.get("minReplicas") is not None, worker.get("maxReplicas") is not None
    yield from elasticjob_scaling.objections(mapping(spec.get("scaling")), (least, most), given)


def _changes(spec: Document, old: Document) -> Iterator[str]:
    if spec.get("adopts") != old.get("adopts"):
        yield forbidden("spec.adopts", "field is immutable; a job keeps the owner of its pods")
    if spec.get("nprocPerNode") != old.get("nprocPerNode") and not old.get("suspend"):
        given = old.get("nprocPerNode")
        made = "without it" if given is None else f"with {shown(given)}"
        yield forbidden(
            "spec.nprocPerNode",
            f"may not change while the job runs, because its pods were created {made}; set spec.suspend to true first",
        )
