"""`spec.scaling` of an ElasticJob: its validation, its fields in the JobSpec, and `status.elasticScaling`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.master.core.k8s.values import durations
from outrider.master.core.k8s.values.field_errors import forbidden, invalid, required
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.scaling.schedule import is_zone, problem
from outrider.master.core.spec import EFFICIENCY, SCHEDULE, THROUGHPUT, WORKER, Entry

OWN = (THROUGHPUT, EFFICIENCY, SCHEDULE)
"""Policies by which the job, not the user, sets its size."""
_DURATIONS = {"cooldown": "scale_cooldown", "evaluation": "scale_evaluation", "roomPatience": "scale_room_patience"}


def spec_fields(scaling: Document, masters: int = 0) -> dict[str, Any]:
    """Fields of the JobSpec. `masters`: number of members that are not workers."""
    found: dict[str, Any] = {}
    if scaling.get("policy") in OWN:
        found["scaling"] = scaling["policy"]
    if scaling.get("policy") == SCHEDULE:
        given_entries = (mapping(entry) for entry in entries(scaling.get("schedule")))
        found["schedule"] = tuple(
            Entry(str(e.get("cron")), (whole(e.get("replicas")) or 0) + masters) for e in given_entries
        )
        found["time_zone"] = str(scaling.get("timeZone") or "UTC")
    if isinstance(gain := scaling.get("minGain"), int | float):
        found["min_gain"] = float(gain)
    given = {name: durations.parsed(scaling.get(field)) for field, name in _DURATIONS.items()}
    return found | {name: seconds for name, seconds in given.items() if seconds is not None}


def objections(scaling: Document, sizes: tuple[int, int], given: tuple[bool, bool]) -> Iterator[str]:
    """Field errors. `sizes`: minReplicas and maxReplicas of the workers; `given`: whether the user has set each."""
    policy = scaling.get("policy")
    if policy in OWN and not all(given):
        yield invalid("spec.scaling.policy", policy, f"needs both minReplicas and maxReplicas of {WORKER}")
    elif policy in (THROUGHPUT, EFFICIENCY) and sizes[0] == sizes[1]:
        why = f"needs minReplicas less than maxReplicas of {WORKER}; both are {sizes[0]}"
        yield invalid("spec.scaling.policy", policy, why)
    for field in _DURATIONS:
        value = scaling.get(field)
        if value is not None and durations.parsed(value) is None:
            yield invalid(f"spec.scaling.{field}", value, f"must be {durations.ALLOWED}")
    yield from _schedule(scaling, sizes, given)


def _schedule(scaling: Document, sizes: tuple[int, int], given: tuple[bool, bool]) -> Iterator[str]:
    found, zone = entries(scaling.get("schedule")), scaling.get("timeZone")
    if scaling.get("policy") == SCHEDULE and not found:
        yield required("spec.scaling.schedule", 'for example [{cron: "0 8 * * 1-5", replicas: 8}, ...]')
    if found and scaling.get("policy") != SCHEDULE:
        yield forbidden("spec.scaling.schedule", f"has no effect without policy: {SCHEDULE}")
    if zone is not None and not is_zone(zone):
        yield invalid("spec.scaling.timeZone", zone, "must be a time zone such as Europe/Berlin; the default is UTC")
    for number, entry in enumerate(found):
        path, size = f"spec.scaling.schedule[{number}]", entry["replicas"]
        if wrong := problem(entry["cron"]):
            why = f'must be a cron expression such as "0 8 * * 1-5": {wrong}'
            yield invalid(f"{path}.cron", entry["cron"], why)
        if given[0] and size < sizes[0]:
            yield invalid(f"{path}.replicas", size, f"must be greater than or equal to minReplicas ({sizes[0]})")
        elif given[1] and size > sizes[1]:
            yield invalid(f"{path}.replicas", size, f"must be less than or equal to maxReplicas ({sizes[1]})")


def status(scaling: Mapping[str, Any], masters: int = 0) -> Document | None:
    """`status.elasticScaling`, from the core's status document; the first fields are KubeDL's.

    It counts workers only. `masters`: number of members that are not workers.
    """
    if not scaling:
        return None
    worker = {
        "elasticCondition": scaling["condition"],
        "continue": scaling["continue"],
        "currentReplicas": scaling["current"] - masters,
        "lastReplicas": None if scaling["last"] is None else scaling["last"] - masters,
        "message": scaling["message"],
        "startTime": scaling["began"],
        "nextEvaluation": scaling["next_evaluation"],
        "policy": scaling["policy"],
        "measured": [
            {"replicas": each["members"] - masters, "samplesPerSecond": each["samples_per_second"],
             "error": each["error"], "steps": each["steps"]}
            for each in scaling["sizes"]
        ],
        "decisions": [
            {"time": each["time"], "replicas": each["members"] - masters, "message": each["reason"]}
            for each in scaling["decisions"]
        ],
    }  # fmt: skip
    return {str(WORKER): {field: value for field, value in worker.items() if value is not None}}


def reported(scaling: Document) -> dict[str, Any] | None:
    """The core's part of the status document that `status` was given, counting workers only; None if there is none."""
    worker = mapping(scaling.get(WORKER))
    if not worker:
        return None
    return {
        "condition": worker.get("elasticCondition"),
        "continue": worker.get("continue"),
        "current": worker.get("currentReplicas"),
        "last": worker.get("lastReplicas"),
        "message": worker.get("message"),
        "began": worker.get("startTime"),
        "next_evaluation": worker.get("nextEvaluation"),
        "policy": worker.get("policy"),
        "sizes": [
            {"members": each["replicas"], "samples_per_second": each["samplesPerSecond"], "error": each["error"],
             "steps": each["steps"]}
            for each in map(mapping, entries(worker.get("measured")))
        ],
        "decisions": [
            {"time": each["time"], "members": each["replicas"], "reason": each["message"]}
            for each in map(mapping, entries(worker.get("decisions")))
        ],
    }  # fmt: skip
