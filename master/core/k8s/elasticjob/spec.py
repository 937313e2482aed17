"""An ElasticJob as the user wrote it: what it means. `k8s.elasticjob.validation` says what is wrong with one,
`k8s.elasticjob.adopted` makes the one that stands for another owner.

Everything here takes a document as it comes, in any shape: the webhook that checks it may have been down when it was
stored. Sizes that the user left out are never written into it, so that `kubectl scale` is not held by a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from outrider.master.core import quantities
from outrider.master.core.checkpoints import save_signal
from outrider.master.core.faults import oom
from outrider.master.core.k8s.elasticjob import metrics as elasticjob_metrics
from outrider.master.core.k8s.elasticjob import pytorch_objections
from outrider.master.core.k8s.elasticjob import rules as elasticjob_rules
from outrider.master.core.k8s.elasticjob import scaling as elasticjob_scaling
from outrider.master.core.k8s.pods import containers
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values import durations, pytorch_fields
from outrider.master.core.k8s.values.fields import mapping, whole
from outrider.master.core.k8s.values.identity import key_of
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.replica_specs import has_master, members, restart_policy_of, roles_of, sizes
from outrider.master.core.scaling.size_policy import Limits
from outrider.master.core.spec import MASTER, RELAUNCHES, WORKER, JobSpec, RoleLimits
from outrider.wire.ids import Role

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
DATA = {
    "elasticData": "elastic_data",
    "keepGlobalBatch": "keep_global_batch",
    "requireResume": "require_resume",
}
KEEP_FAILED_PODS = 3
"""As the definition of ElasticJob says: where no webhook and no default was there, it holds all the same."""
HANG = ("step", "init", "checkpoint", "eval")


def resized(job: Document, replicas: int) -> Document:
    """The merge patch that gives it so many members, whatever case its user writes workers in."""
    specs = mapping(mapping(job.get("spec")).get("replicaSpecs"))
    role = next((role for role in specs if str(role).lower() == WORKER), str(WORKER))
    return {"spec": {"replicaSpecs": {role: {"replicas": replicas - has_master(job)}}}}


def spec_of(job: Document) -> JobSpec:
    """What the core is told of a job that `k8s.elasticjob.validation` has nothing against."""
    spec = mapping(job.get("spec"))
    roles = roles_of(job)
    worker = roles.get(WORKER) or roles.get(MASTER, {})
    least, most, wanted = members(job)
    asked: dict[str, Any] = {}
    for field, name in (("nprocPerNode", "nproc"), ("nodeUnit", "node_unit"), ("spares", "spares"),
                        ("maxRestarts", "max_restarts")):  # fmt: skip
        if (count := whole(spec.get(field))) is not None:
            asked[name] = count
    asked["restart_policy"] = restart_policy_of(worker)
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
    asked |= elasticjob_scaling.asked(mapping(spec.get("scaling")), int(has_master(job)))
    asked["metrics_pattern"] = elasticjob_metrics.asked(spec.get("metrics"))
    asked["save_signal"] = signal_of(spec.get("saveSignal"))
    if has_master(job):
        asked |= {"has_master": True, "limits": (limits(job, MASTER),)}
    asked["remarks"] = pytorch_objections.remarks(job)
    return JobSpec(
        key_of(job), least, most, wanted,
        is_adopted=bool(spec.get("adopts")), max_restarts_asked="max_restarts" in asked, **asked,
    )  # fmt: skip


def limits(job: Document, name: Role) -> RoleLimits:
    role = roles_of(job)[name]
    limit = whole(role.get("restartLimit"))
    return RoleLimits(name, RELAUNCHES if limit is None else limit, most_memory(job, role), restart_policy_of(role))


def signal_of(text: object) -> str:
    """Empty where there is none, or it is none: the webhook has told the user."""
    try:
        return save_signal.parsed(text) if isinstance(text, str) else ""
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
            asked[name] = elasticjob_rules.codes(codes[field])
    if rules := elasticjob_rules.parsed(recovery.get("rules")):
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
    limit = containers.memory_limit(pod, trainer_name(pod))
    return oom.DEFAULT_CAP * limit if limit else None


def with_defaults(job: Document, old: Document | None = None) -> Document:
    """A copy with lower-case roles, each with `replicas` (the scale subresource reads it).

    An apply of `Worker` over a stored `worker` shows both: the one that is not in `old` is what the user says now.
    """
    job = deepcopy(job)
    spec = mapping(job.get("spec"))
    pytorch_fields.with_our_roles(spec, is_new=old is None)
    specs = spec.get("replicaSpecs")
    if isinstance(specs, dict):
        stored = mapping(mapping(mapping(old).get("spec")).get("replicaSpecs"))
        newest_last = sorted(specs.items(), key=lambda entry: entry[0] not in stored)
        spec["replicaSpecs"] = {str(role).lower(): value for role, value in newest_last}
        read = pytorch_fields.in_our_words(job)
        meant = roles_of(read)
        for name, role in spec["replicaSpecs"].items():
            if isinstance(role, dict) and role.get("replicas") is None:
                role["replicas"] = sizes(meant[name])[2]
        _keep_within(mapping(read.get("spec")), mapping(spec["replicaSpecs"].get(WORKER)), roles_of(mapping(old)))
    return job


def _keep_within(spec: Document, worker: Document, before: Mapping[str, Document]) -> None:
    """The size that a job has found by itself gives way to new limits: its user need not say another one too."""
    found = whole(worker.get("replicas"))
    is_own = mapping(spec.get("scaling")).get("policy") in elasticjob_scaling.OWN
    if not (is_own or spec.get(pytorch_fields.ENABLE) is True) or found is None:  # the latter may leave one size alone
        return
    least, most, _wanted = sizes(roles_of({"spec": spec})[WORKER])
    limits = Limits(least, most, max(whole(spec.get("nodeUnit")) or 1, 1))
    if found == whole(before.get(WORKER, {}).get("replicas")) and limits.sizes():
        worker["replicas"] = limits.within(found)
