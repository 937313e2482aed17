"""The meaning of an ElasticJob: from the user's document to the core's JobSpec.

`k8s.elasticjob.validation` validates the document; `k8s.elasticjob.adopted` makes the ElasticJob of another owner.
These functions accept documents of any shape, because the webhook may have been down when the document was stored.
Missing sizes are never written into the document, so no default limits `kubectl scale`.
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
"""Durations in `spec.recovery` and their fields in a JobSpec."""
NODE_CHECKS = {"enabled": "node_check", "excludeStragglers": "exclude_stragglers"}
DATA = {
    "elasticData": "elastic_data",
    "keepGlobalBatch": "keep_global_batch",
    "requireResume": "require_resume",
}
KEEP_FAILED_PODS = 3
"""Default of `keepFailedPods`, as in the schema; it also holds for documents stored without defaults."""
HANG = ("step", "init", "checkpoint", "eval")


def resized(job: Document, replicas: int) -> Document:
    """The merge patch that sets the number of members, whatever the case of the role's name."""
    specs = mapping(mapping(job.get("spec")).get("replicaSpecs"))
    role = next((role for role in specs if str(role).lower() == WORKER), str(WORKER))
    return {"spec": {"replicaSpecs": {role: {"replicas": replicas - has_master(job)}}}}


def spec_of(job: Document) -> JobSpec:
    """The core's spec of a valid job."""
    spec = mapping(job.get("spec"))
    roles = roles_of(job)
    worker = roles.get(WORKER) or roles.get(MASTER, {})
    least, most, desired = members(job)
    fields: dict[str, Any] = {}
    for field, name in (("nprocPerNode", "nproc"), ("nodeUnit", "node_unit"), ("spares", "spares"),
                        ("maxRestarts", "max_restarts")):  # fmt: skip
        if (count := whole(spec.get(field))) is not None:
            fields[name] = count
    fields["restart_policy"] = restart_policy_of(worker)
    if (limit := whole(worker.get("restartLimit"))) is not None:
        fields["relaunch_limit"] = limit
    if not spec.get("adopts"):
        kept = whole(spec.get("keepFailedPods"))
        fields["keep_failed_pods"] = KEEP_FAILED_PODS if kept is None else kept
        fields["max_memory"] = most_memory(job, worker)
    recovery = mapping(spec.get("recovery"))
    for field, name in RECOVERY.items():
        if (seconds := durations.parsed(recovery.get(field))) is not None:
            fields[name] = seconds
    fields |= _of_hangs(mapping(recovery.get("hang"))) | _of_exit_codes(recovery)
    check = mapping(spec.get("nodeCheck"))
    for switches, names in ((check, NODE_CHECKS), (spec, DATA)):
        for field, name in names.items():
            if isinstance(switches.get(field), bool):
                fields[name] = switches[field]
    fields |= elasticjob_scaling.spec_fields(mapping(spec.get("scaling")), int(has_master(job)))
    fields["metrics_pattern"] = elasticjob_metrics.pattern_of(spec.get("metrics"))
    fields["save_signal"] = signal_of(spec.get("saveSignal"))
    if has_master(job):
        fields |= {"has_master": True, "limits": (limits(job, MASTER),)}
    fields["remarks"] = pytorch_objections.remarks(job)
    return JobSpec(
        key_of(job), least, most, desired,
        is_adopted=bool(spec.get("adopts")), max_restarts_asked="max_restarts" in fields, **fields,
    )  # fmt: skip


def limits(job: Document, name: Role) -> RoleLimits:
    """The limits of one role of a job."""
    role = roles_of(job)[name]
    limit = whole(role.get("restartLimit"))
    return RoleLimits(name, RELAUNCHES if limit is None else limit, most_memory(job, role), restart_policy_of(role))


def signal_of(text: object) -> str:
    """The signal's name; empty if there is none or it is invalid, which the webhook has reported."""
    try:
        return save_signal.parsed(text) if isinstance(text, str) else ""
    except ValueError:
        return ""


def _of_hangs(hang: Document) -> dict[str, Any]:
    """Fields of the JobSpec for hang detection; missing limits keep their defaults."""
    given = {f"hang_{phase}": durations.parsed(hang.get(phase)) for phase in HANG}
    fields: dict[str, Any] = {name: seconds for name, seconds in given.items() if seconds is not None}
    return fields | ({"hang_detection": False} if hang.get("enabled") is False else {})


def _of_exit_codes(recovery: Document) -> dict[str, Any]:
    """Fields of the JobSpec for `exitCodes` and `rules`."""
    fields: dict[str, Any] = {}
    codes = mapping(recovery.get("exitCodes"))
    for field, name in (("retryable", "retryable_codes"), ("permanent", "permanent_codes")):
        if codes.get(field) is not None:
            fields[name] = elasticjob_rules.codes(codes[field])
    if rules := elasticjob_rules.parsed(recovery.get("rules")):
        fields["rules"] = rules
    return fields


def most_memory(job: Document, role: Document) -> int | None:
    """Maximum memory of the trainer's container in bytes; None if neither `maxMemory` nor the template sets a limit."""
    most = quantities.parsed(role.get("maxMemory"))
    if most is not None:
        return most
    template = mapping(role.get("template"))
    notes = mapping(job["metadata"].get("annotations")) | mapping(mapping(template.get("metadata")).get("annotations"))
    pod = {"metadata": {"annotations": notes}, "spec": mapping(template.get("spec"))}
    limit = containers.memory_limit(pod, trainer_name(pod))
    return oom.DEFAULT_CAP * limit if limit else None


def with_defaults(job: Document, old: Document | None = None) -> Document:
    """A copy with lower-case roles, each with `replicas`, which the scale subresource reads.

    After an apply of `Worker` over a stored `worker` the document has both; the one that is not in `old` wins.
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
    """Moves the size of a job that scales itself into new limits, so the user need not set it too."""
    found = whole(worker.get("replicas"))
    is_own = mapping(spec.get("scaling")).get("policy") in elasticjob_scaling.OWN
    if not (is_own or spec.get(pytorch_fields.ENABLE) is True) or found is None:  # enableElastic may permit one size
        return
    least, most, _desired = sizes(roles_of({"spec": spec})[WORKER])
    limits = Limits(least, most, max(whole(spec.get("nodeUnit")) or 1, 1))
    if found == whole(before.get(WORKER, {}).get("replicas")) and limits.sizes():
        worker["replicas"] = limits.within(found)
