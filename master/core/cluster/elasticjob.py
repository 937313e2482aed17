"""An ElasticJob as the user wrote it: what is wrong with it, what it means, and the one that stands for another owner.

Everything here takes a document as it comes, in any shape: the webhook that checks it may have been down when it was
stored. Sizes that the user left out are never written into it, so that `kubectl scale` is not held by a default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from master.core import memory, save_signals
from master.core.cluster import containers, durations, job_rules, job_scaling, quantities
from master.core.cluster.names import (
    ELASTIC_DATA,
    GROUP_VERSION,
    JOB,
    KEEP_GLOBAL_BATCH,
    KIND,
    MAX,
    MAX_RESTARTS,
    MIN,
    NODE_CHECK,
    NPROC,
    SAVE_SIGNAL,
    SPARES,
    Document,
)
from master.core.cluster.parts import mapping, shown, whole
from master.core.spec import WORKER, JobSpec
from wire.ids import JobName

ROLES = ("worker", "chief", "ps", "evaluator", "master")
POD_NAME = 63
"""Characters: a pod's name is its host name too."""
ID_DIGITS = 5
RECOVERY = {
    "silentAfter": "silent_after",
    "replaceAfter": "replace_after",
    "stopGrace": "stop_grace",
    "handlerGrace": "handler_grace",
    "saveGrace": "save_grace",
    "growPatience": "grow_patience",
    "startPatience": "start_patience",
}
"""Durations of `spec.recovery`, and what they are called in a JobSpec."""
NODE_CHECKS = {"enabled": "node_check", "excludeStragglers": "exclude_stragglers"}
DATA = {"elasticData": "elastic_data", "keepGlobalBatch": "keep_global_batch"}
KEEP_FAILED_PODS = 3
"""As the definition of ElasticJob says: where no webhook and no default was there, it holds all the same."""
HANG = ("step", "init", "checkpoint", "eval")
_COUNTS = {"nprocPerNode": 1, "nodeUnit": 1, "spares": 0, "maxRestarts": 0, "keepFailedPods": 0}
_SIZES = ("replicas", "minReplicas", "maxReplicas")
_RESTARTS = ("OnFailure", "Never")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


# -- reading ------------------------------------------------------------------------------------------------------
def key_of(job: Document) -> JobName:
    metadata = job["metadata"]
    return JobName(f"{metadata.get('namespace') or 'default'}/{metadata['name']}")


def is_deleted(job: Document) -> bool:
    """It is there only because a finalizer keeps it."""
    return bool(job["metadata"].get("deletionTimestamp"))


def roles_of(job: Mapping[str, Any]) -> dict[str, Document]:
    """The replica specs by the lower-case name of their role; of two that differ in case only, the last."""
    specs = mapping(mapping(job.get("spec")).get("replicaSpecs"))
    return {str(role).lower(): mapping(spec) for role, spec in specs.items()}


def pod_templates(job: Mapping[str, Any]) -> dict[str, Document]:
    """By role, what its pods are made from."""
    return {role: mapping(spec.get("template")) for role, spec in roles_of(job).items()}


def sizes(role: Mapping[str, Any]) -> tuple[int, int, int]:
    """Least, most and wanted members: what is left out follows from what is there."""
    least, most = whole(role.get("minReplicas")), whole(role.get("maxReplicas"))
    wanted = whole(role.get("replicas"))
    if wanted is None:
        wanted = most if most is not None else least if least is not None else 1
    return wanted if least is None else least, wanted if most is None else most, wanted


def resized(job: Document, replicas: int) -> Document:
    """The merge patch that gives it so many workers, whatever case its user writes them in."""
    specs = mapping(mapping(job.get("spec")).get("replicaSpecs"))
    role = next((role for role in specs if str(role).lower() == WORKER), str(WORKER))
    return {"spec": {"replicaSpecs": {role: {"replicas": replicas}}}}


def spec_of(job: Document) -> JobSpec:
    """What the core is told of a job that `validate` has nothing against."""
    spec = mapping(job.get("spec"))
    worker = roles_of(job).get(WORKER, {})
    least, most, wanted = sizes(worker)
    asked: dict[str, Any] = {}
    for field, name in (("nprocPerNode", "nproc"), ("nodeUnit", "node_unit"), ("spares", "spares"),
                        ("maxRestarts", "max_restarts")):  # fmt: skip
        if (count := whole(spec.get(field))) is not None:
            asked[name] = count
    if (limit := whole(worker.get("restartLimit"))) is not None:
        asked["relaunch_limit"] = limit
    if not spec.get("adopts"):
        kept = whole(spec.get("keepFailedPods"))
        asked["keep_failed_pods"] = KEEP_FAILED_PODS if kept is None else kept
        asked["max_memory"] = most_memory(job, worker)
    recovery = mapping(spec.get("recovery"))
    for field, name in RECOVERY.items():
        if (seconds := durations.parsed(recovery.get(field))) is not None:
            asked[name] = seconds
    asked |= _of_hangs(mapping(recovery.get("hang"))) | _of_exit_codes(recovery)
    check = mapping(spec.get("nodeCheck"))
    for switches, names in ((check, NODE_CHECKS), (spec, DATA)):
        for field, name in names.items():
            if isinstance(switches.get(field), bool):
                asked[name] = switches[field]
    asked |= job_scaling.asked(mapping(spec.get("scaling")))
    asked["save_signal"] = _signal(spec.get("saveSignal"))
    return JobSpec(
        key_of(job), least, most, wanted,
        is_adopted=bool(spec.get("adopts")), max_restarts_asked="max_restarts" in asked, **asked,
    )  # fmt: skip


def _signal(text: object) -> str:
    """Empty where there is none, or it is none: the webhook has told the user."""
    try:
        return save_signals.parsed(text) if isinstance(text, str) else ""
    except ValueError:
        return ""


def _of_hangs(hang: Document) -> dict[str, Any]:
    """A limit that is left out is ours; `enabled: false` switches all of them off."""
    given = {f"hang_{phase}": durations.parsed(hang.get(phase)) for phase in HANG}
    asked: dict[str, Any] = {name: seconds for name, seconds in given.items() if seconds is not None}
    return asked | ({"hang_detection": False} if hang.get("enabled") is False else {})


def _of_exit_codes(recovery: Document) -> dict[str, Any]:
    """What the core is told of `exitCodes` and `rules`."""
    asked: dict[str, Any] = {}
    codes = mapping(recovery.get("exitCodes"))
    for field, name in (("retryable", "retryable_codes"), ("permanent", "permanent_codes")):
        if codes.get(field) is not None:
            asked[name] = job_rules.codes(codes[field])
    if rules := job_rules.parsed(recovery.get("rules")):
        asked["rules"] = rules
    return asked


def most_memory(job: Document, role: Document) -> int | None:
    """Bytes; None where neither the user nor the template says any."""
    most = quantities.parsed(role.get("maxMemory"))
    if most is not None:
        return most
    template = mapping(role.get("template"))
    notes = mapping(job["metadata"].get("annotations")) | mapping(mapping(template.get("metadata")).get("annotations"))
    pod = {"metadata": {"annotations": notes}, "spec": mapping(template.get("spec"))}
    limit = containers.memory_limit(pod, containers.trainer_name(pod))
    return memory.DEFAULT_CAP * limit if limit else None


# -- admission ----------------------------------------------------------------------------------------------------
def with_defaults(job: Document, old: Document | None = None) -> Document:
    """A copy with lower-case roles, each with `replicas` (the scale subresource reads it).

    An apply of `Worker` over a stored `worker` shows both: the one that is not in `old` is what the user says now.
    """
    job = deepcopy(job)
    spec = mapping(job.get("spec"))
    specs = spec.get("replicaSpecs")
    if isinstance(specs, dict):
        stored = mapping(mapping(mapping(old).get("spec")).get("replicaSpecs"))
        newest_last = sorted(specs.items(), key=lambda entry: entry[0] not in stored)
        spec["replicaSpecs"] = {str(role).lower(): value for role, value in newest_last}
        for role in spec["replicaSpecs"].values():
            if isinstance(role, dict) and role.get("replicas") is None:
                role["replicas"] = sizes(role)[2]
    return job


def validate(job: Document, old: Document | None = None) -> list[str]:
    """What is wrong with it: sentences that begin with the path of a field; none where it can be run."""
    spec = mapping(job.get("spec"))
    said = list(_name(job) if spec.get("adopts") is None else _adoption(spec))
    said += _replica_specs(spec)
    said += _counts(spec)
    said += _switches(spec)
    said += _recovery(mapping(spec.get("recovery")))
    said += job_rules.objections(mapping(spec.get("recovery")), "spec.recovery")
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
    if "ps" in roles and name and not _DNS_LABEL.fullmatch(name):
        yield (
            f"metadata.name: {name} begins the names of Services, because there is a role ps: it must begin with a "
            f"lower-case letter and may have only lower-case letters, digits and '-'"
        )


def _adoption(spec: Document) -> Iterator[str]:
    adopts = mapping(spec.get("adopts"))
    for field in ("apiVersion", "kind", "name"):
        if not adopts.get(field) or not isinstance(adopts[field], str):
            yield f"spec.adopts.{field}: it is missing; apiVersion, kind and name say whose pods these are"
    for role, value in mapping(spec.get("replicaSpecs")).items():
        if mapping(value).get("template") is not None:
            yield (
                f"spec.replicaSpecs.{role}.template: a job that adopts the pods of another owner makes none itself; "
                f"leave out template or adopts"
            )


def _replica_specs(spec: Document) -> Iterator[str]:
    specs = spec.get("replicaSpecs")
    if not isinstance(specs, dict) or not specs:
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
        if not isinstance(value, dict):
            yield f"{path}: it must be an object with replicas and template"
            continue
        yield from _role(path, value, spec)
    if WORKER not in known and all(str(role).lower() in ROLES for role in specs):
        yield f"spec.replicaSpecs.{WORKER}: it is missing; every job has workers"


def _role(path: str, role: Document, spec: Document) -> Iterator[str]:
    yield from _role_sizes(path, role, whole(spec.get("nodeUnit")) or 1)
    limit = role.get("restartLimit")
    if limit is not None and (whole(limit) is None or limit < 0):
        yield f"{path}.restartLimit: {shown(limit)} must be a whole number from 0"
    most_memory = role.get("maxMemory")
    if most_memory is not None:
        yield from _memory(f"{path}.maxMemory", most_memory)
    if spec.get("adopts") is None:
        yield from _template(f"{path}.template", role.get("template"))


def _role_sizes(path: str, role: Document, unit: int) -> Iterator[str]:
    wrong = [f for f in _SIZES if role.get(f) is not None and (whole(role[f]) is None or role[f] < 1)]
    for field in wrong:
        hint = "; spec.suspend: true lets all members go" if field == "replicas" and role[field] == 0 else ""
        yield f"{path}.{field}: {shown(role[field])} must be a whole number from 1{hint}"
    if wrong:
        return
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
            if field in given and role[field] % unit:
                yield f"{path}.{field}: {role[field]} is no multiple of nodeUnit {unit}"


def _template(path: str, template: object) -> Iterator[str]:
    pod = mapping(mapping(template).get("spec"))
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        yield f"{path}.spec.containers: there is none, and the first one is the trainer"
        return
    policy = pod.get("restartPolicy")
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


def _counts(spec: Document) -> Iterator[str]:
    for field, least in _COUNTS.items():
        value = spec.get(field)
        if value is not None and (whole(value) is None or value < least):
            yield f"spec.{field}: {shown(value)} must be a whole number from {least}"


def _switches(spec: Document) -> Iterator[str]:
    check = mapping(spec.get("nodeCheck"))
    given = {f"nodeCheck.{field}": check.get(field) for field in NODE_CHECKS}
    given |= {field: spec.get(field) for field in DATA}
    for path, value in given.items():
        if value is not None and not isinstance(value, bool):
            yield f"spec.{path}: {shown(value)} must be true or false"
    if (asked := spec.get("saveSignal")) is not None:
        try:
            save_signals.parsed(str(asked))
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
    given = whole(worker.get("minReplicas")) is not None, whole(worker.get("maxReplicas")) is not None
    yield from job_scaling.objections(mapping(spec.get("scaling")), (least, most), given)


def _changes(spec: Document, old: Document) -> Iterator[str]:
    if spec.get("adopts") != old.get("adopts"):
        yield "spec.adopts: it cannot be changed; a job keeps the owner of its pods"
    if spec.get("nprocPerNode") != old.get("nprocPerNode") and not old.get("suspend"):
        yield (
            "spec.nprocPerNode: it cannot be changed while the job runs, because its pods were made with "
            f"{shown(old.get('nprocPerNode'))}; set spec.suspend to true first"
        )


# -- other controllers' pods --------------------------------------------------------------------------------------
def adopting(owner: Document, size: int, pod: Document, least: int | None = None, most: int | None = None) -> Document:
    """The ElasticJob that stands for a Job, StatefulSet … of so many pods; `pod` is any of them, and what its
    annotations say holds for all. `least` and `most`: what the owner asks for itself (a PyTorchJob's elasticPolicy).
    It goes when its owner does.
    """
    metadata, of_pod = owner["metadata"], mapping(pod.get("metadata"))
    labels, notes = mapping(of_pod.get("labels")), mapping(of_pod.get("annotations"))
    worker: Document = {"replicas": size}
    worker["minReplicas"] = min(_counted(notes, MIN, 1) or least or size, size)
    worker["maxReplicas"] = max(_counted(notes, MAX, 1) or most or size, size)
    spec: Document = {
        "adopts": {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"]},
        "replicaSpecs": {str(WORKER): worker},
    }
    for note, field, least in ((NPROC, "nprocPerNode", 1), (SPARES, "spares", 0), (MAX_RESTARTS, "maxRestarts", 0)):
        if (count := _counted(notes, note, least)) is not None:
            spec[field] = count
    if _is_yes(notes, NODE_CHECK):
        spec["nodeCheck"] = {"enabled": True}
    for note, field in ((ELASTIC_DATA, "elasticData"), (KEEP_GLOBAL_BATCH, "keepGlobalBatch")):
        if _is_yes(notes, note):
            spec[field] = True
    if signal := _signal(notes.get(SAVE_SIGNAL)):
        spec["saveSignal"] = signal
    return {
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "metadata": {
            "name": labels.get(JOB) or metadata["name"],
            "namespace": metadata.get("namespace") or of_pod.get("namespace") or "default",
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": spec,
    }


def _is_yes(notes: Document, note: str) -> bool:
    return str(notes.get(note, "")).strip().lower() in ("true", "enabled", "1")


def _counted(notes: Document, note: str, least: int) -> int | None:
    """An annotation's whole number; None where there is none, or it is none: the webhook has told the user."""
    text = str(notes.get(note, "")).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) and int(text) >= least else None
