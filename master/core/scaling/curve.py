"""What is known of a job that finds its own size (`scaling.autoscaler`): for its user, and for the next master."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.master.core.scaling import size_policy
from outrider.master.core.scaling.size_policy import Policy
from outrider.master.core.spec import SCHEDULE, JobSpec
from outrider.master.core.state.scaling import Rate, Scaling, Search
from outrider.master.core.text import moment

STOP, PENDING = "Stop", "HasPendingPod"


def policy_of(spec: JobSpec) -> Policy:
    return Policy(spec.min_gain, spec.scale_cooldown, spec.scale_evaluation)


def document(scaling: Scaling, spec: JobSpec, size: int, offset: float) -> dict[str, Any]:
    """`offset`: what to add to the core's clock for the wall's."""
    if not spec.scaling:
        return {}
    rates = sorted({**scaling.search.aside, **scaling.search.known}.items())
    told = {
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
    return {"scaling": told}


def _size(members: int, rate: Rate) -> dict[str, Any]:
    """`error`: the standard error of it."""
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


# -- for the next master --------------------------------------------------------------------------------------------
def saved(scaling: Scaling, offset: float) -> dict[str, Any]:
    search = scaling.search
    return {
        "known": [[size, *_moved(rate, offset)] for size, rate in sorted(search.known.items())],
        "aside": [[size, *_moved(rate, offset)] for size, rate in sorted(search.aside.items())],
        "search": [search.base, search.changed + offset, _later(search.settled, offset), search.patience],
        "began": _later(scaling.began, offset),
        "told": [scaling.condition, scaling.message, scaling.last, scaling.by_hand],
        "room": [scaling.room, _later(scaling.room_at, offset), scaling.no_room],
        "job": [scaling.seen, *sorted(scaling.written)],
        "trail": [[at + offset, size, why] for at, size, why in scaling.trail],
        "noise": [scaling.batch, *scaling.noise],
    }


def restored(kept: Mapping[str, Any], offset: float) -> Scaling:
    """What `saved` has made."""
    base, changed, settled, patience = kept["search"]
    condition, message, last, by_hand = kept["told"]
    room, room_at, no_room = kept["room"]
    seen, *written = kept["job"]
    search = Search(
        {size: _moved(Rate(*rate), -offset) for size, *rate in kept["known"]},
        base, changed - offset, _later(settled, -offset), patience,
        {size: _moved(Rate(*rate), -offset) for size, *rate in kept["aside"]},
    )  # fmt: skip
    scaling = Scaling(
        search, _later(kept["began"], -offset), None, condition, message, last, by_hand,
        room, _later(room_at, -offset), no_room, seen=seen, written=set(written),
    )  # fmt: skip
    scaling.trail.extend((at - offset, size, why) for at, size, why in kept["trail"])
    scaling.batch, *noise = kept.get("noise", [0.0])
    scaling.noise.extend(noise)
    return scaling


def _later(at: float | None, offset: float) -> float | None:
    return None if at is None else at + offset


def _moved(rate: Rate, offset: float) -> Rate:
    return rate._replace(at=rate.at + offset)
