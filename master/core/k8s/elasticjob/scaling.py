"""`spec.scaling` of an ElasticJob. What is wrong with it, what is the core told of it, and what is its status?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.master.core.k8s.values import durations
from outrider.master.core.k8s.values.fields import entries, mapping, shown, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.scaling.schedule import is_zone, problem
from outrider.master.core.spec import EFFICIENCY, SCHEDULE, THROUGHPUT, WORKER, Entry

OWN = (THROUGHPUT, EFFICIENCY, SCHEDULE)
"""By these the size is not the user's."""
_DURATIONS = {"cooldown": "scale_cooldown", "evaluation": "scale_evaluation", "roomPatience": "scale_room_patience"}


def asked(scaling: Document, masters: int = 0) -> dict[str, Any]:
    """Fields of a JobSpec; `masters`: members beside the workers."""
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
    """`sizes`: the least and the most members; `given`: which of them the user has."""
    policy = scaling.get("policy")
    if policy in OWN and not all(given):
        yield f"spec.scaling.policy: {policy} needs both minReplicas and maxReplicas of {WORKER}"
    elif policy in (THROUGHPUT, EFFICIENCY) and sizes[0] == sizes[1]:
        yield (
            f"spec.scaling.policy: {policy} has nothing to find, since minReplicas and maxReplicas of {WORKER} are "
            f"both {sizes[0]}"
        )
    for field in _DURATIONS:
        value = scaling.get(field)
        if value is not None and durations.parsed(value) is None:
            yield f"spec.scaling.{field}: {shown(value)} is no duration; write {durations.ALLOWED}"
    yield from _schedule(scaling, sizes, given)


def _schedule(scaling: Document, sizes: tuple[int, int], given: tuple[bool, bool]) -> Iterator[str]:
    found, zone = entries(scaling.get("schedule")), scaling.get("timeZone")
    if scaling.get("policy") == SCHEDULE and not found:
        yield 'spec.scaling.schedule: it is missing; write it as [{cron: "0 8 * * 1-5", replicas: 8}, ...]'
    if found and scaling.get("policy") != SCHEDULE:
        yield f"spec.scaling.schedule: it means nothing without policy: {SCHEDULE}"
    if zone is not None and not is_zone(zone):
        yield f"spec.scaling.timeZone: {shown(zone)} is none; write it as Europe/Berlin, or leave it out for UTC"
    for number, entry in enumerate(found):
        path, size = f"spec.scaling.schedule[{number}]", entry["replicas"]
        if wrong := problem(entry["cron"]):
            yield f'{path}.cron: {shown(entry["cron"])} is no cron expression, as "0 8 * * 1-5": {wrong}'
        if given[0] and size < sizes[0]:
            yield f"{path}.replicas: {size} is less than minReplicas {sizes[0]}"
        elif given[1] and size > sizes[1]:
            yield f"{path}.replicas: {size} is more than maxReplicas {sizes[1]}"


def status(told: Mapping[str, Any], masters: int = 0) -> Document | None:
    """`status.elasticScaling`, from the status document; the first fields as KubeDL has them. `masters`: members that
    are no workers; who counts workers is told of them alone."""
    if not told:
        return None
    worker = {
        "elasticCondition": told["condition"],
        "continue": told["continue"],
        "currentReplicas": told["current"] - masters,
        "lastReplicas": None if told["last"] is None else told["last"] - masters,
        "message": told["message"],
        "startTime": told["began"],
        "nextEvaluation": told["next_evaluation"],
        "policy": told["policy"],
        "measured": [
            {"replicas": each["members"] - masters, "samplesPerSecond": each["samples_per_second"],
             "error": each["error"], "steps": each["steps"]}
            for each in told["sizes"]
        ],
        "decisions": [
            {"time": each["time"], "replicas": each["members"] - masters, "message": each["reason"]}
            for each in told["decisions"]
        ],
    }  # fmt: skip
    return {str(WORKER): {field: value for field, value in worker.items() if value is not None}}


def told(scaling: Document) -> dict[str, Any] | None:
    """What `status` has made `status.elasticScaling` of, workers counted alone; None where there is none."""
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
