"""The part of the status about autoscaling (`scaling.autoscaler`): measured sizes and decisions."""

from __future__ import annotations

from typing import Any

from outrider.master.core.scaling import size_policy
from outrider.master.core.scaling.size_policy import Policy
from outrider.master.core.spec import SCHEDULE, JobSpec
from outrider.master.core.state.scaling import Rate, Scaling
from outrider.master.core.text import moment

STOP, PENDING = "Stop", "HasPendingPod"


def policy_of(spec: JobSpec) -> Policy:
    return Policy(spec.min_gain, spec.scale_cooldown, spec.scale_evaluation)


def document(scaling: Scaling, spec: JobSpec, size: int, offset: float) -> dict[str, Any]:
    """The status's `scaling`; empty without autoscaling. `offset`: Unix time minus the core's clock, in seconds."""
    if not spec.scaling:
        return {}
    rates = sorted({**scaling.search.aside, **scaling.search.known}.items())
    shown = {
        "policy": spec.scaling,
        "condition": scaling.condition,
        "continue": not scaling.by_hand and scaling.search.settled is None and scaling.room is None,
        "current": size,
        "last": scaling.last,
        "message": scaling.message,
        "began": _moment(scaling.began, offset),
        "next_evaluation": _moment(_next(scaling, spec), offset),
        "sizes": [_size(members, rate) for members, rate in rates],
        "decisions": [{"time": moment(at + offset), "members": to, "reason": why} for at, to, why in scaling.trail],
    }
    return {"scaling": shown}


def _size(members: int, rate: Rate) -> dict[str, Any]:
    """The measurement of one size; `error` is the standard error of its samples per second."""
    error = round(rate.samples * rate.error, 4)
    return {"members": members, "samples_per_second": round(rate.samples, 4), "error": error, "steps": rate.steps}


def _next(scaling: Scaling, spec: JobSpec) -> float | None:
    if scaling.by_hand:
        return None
    if spec.scaling == SCHEDULE:
        return scaling.due_at
    if scaling.room is not None:
        return scaling.room_at
    return None if scaling.search.settled is None else size_policy.next_evaluation(scaling.search, policy_of(spec))


def _moment(at: float | None, offset: float) -> str | None:
    return None if at is None else moment(at + offset)
