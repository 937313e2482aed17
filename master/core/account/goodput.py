"""What users read of the time account: seconds by cause, goodput, and the mean time between faults."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from outrider.master.core.account import causes
from outrider.master.core.state.account import Sample
from outrider.master.core.state.job import State

LONG, TIMES_USUAL = 20.0, 10
"""Seconds and usual steps after which a step under way seems to hang. A large job accounts every ten seconds."""
HOUR, DAY = 3600.0, 86_400.0
MINUTE, HALF_HOUR = 60.0, 1800.0
"""Seconds between two samples of the last hour, and between older ones."""


def seconds(state: State, now: float) -> dict[str, float]:
    """The seconds of members by cause, with those whose cause may still change under what they seem to be.

    A step that takes much longer than the usual ones seems to be a hang until it ends.
    """
    found = unordered(state, now)
    return {cause: found[cause] for cause in causes.CAUSES if found.get(cause)}


def unordered(state: State, now: float) -> dict[str, float]:
    """`seconds`, with causes in any order, some of them with 0 s: cheap enough for a check of every step."""
    found, limit = dict(state.account.seconds), 0.0
    if state.account.closed:
        return found
    for seat in state.account.seats.values():
        process, since = seat.process, seat.since
        if process is not None and seat.ends_at is None and process.doing:
            begun = min(max(process.doing_since, since), now)
            is_first = process.first_step_at is None
            before = causes.FIRST_STEP if is_first else causes.PRODUCTIVE
            found[before] = found.get(before, 0.0) + begun - since
            since = begun
        if process is not None and now - since > LONG and seat.cause == causes.PRODUCTIVE:
            limit = limit or _longest_step(state)
            late = max(0.0, now - since - limit)
            found[causes.HANG] = found.get(causes.HANG, 0.0) + late
            since += late
        if now > since:
            found[seat.cause] = found.get(seat.cause, 0.0) + now - since
    return found


def _longest_step(state: State) -> float:
    """Seconds after which a step seems to hang."""
    usual = median(state.progress.step_seconds) if state.progress.step_seconds else 0.0
    return max(LONG, TIMES_USUAL * usual)


def settled(state: State) -> dict[str, float]:
    """The seconds of members by cause, as far as they are final: none of them ever decreases."""
    return {cause: state.account.seconds.get(cause, 0.0) for cause in causes.CAUSES}


def wall(state: State, now: float) -> float:
    """The seconds of all desired members, from the job's beginning to its end."""
    account = state.account
    return account.wall if account.closed else account.wall + len(account.seats) * max(0.0, now - account.wall_at)


def sample(state: State) -> None:
    """Notes the account once in a minute; older samples are thinned out to one in half an hour."""
    account, now = state.account, state.now
    samples = account.samples
    if samples and now - samples[-1].at < MINUTE:
        return
    samples.append(Sample(now, account.seconds.get(causes.PRODUCTIVE, 0.0), wall(state, now)))
    kept: list[Sample] = []
    for each in samples:
        is_recent = each.at >= now - HOUR - MINUTE
        if each.at >= now - DAY - HALF_HOUR and (is_recent or not kept or each.at - kept[-1].at >= HALF_HOUR):
            kept.append(each)
    if len(kept) < len(samples):
        samples.clear()
        samples.extend(kept)


def document(states: Sequence[State], now: float) -> dict[str, Any]:
    """The account as the status has it; several states are the tasks of one job."""
    found: dict[str, float] = {}
    for state in states:
        for cause, spent in seconds(state, now).items():
            found[cause] = found.get(cause, 0.0) + spent
    total = sum(wall(state, now) for state in states)
    is_trained = any(state.progress.first_step is not None for state in states)
    faults = sum(sum(state.faults.counts.values()) for state in states)
    age = max((now - state.began_at for state in states), default=0.0)
    return {
        "goodput": _ratio(found.get(causes.PRODUCTIVE, 0.0), total) if is_trained else None,
        "goodput_1h": _within(states, now, HOUR) if is_trained else None,
        "goodput_1d": _within(states, now, DAY) if is_trained else None,
        "mtbf_seconds": round(age / faults, 1) if faults else None,
        "time": {cause: round(found[cause], 3) for cause in causes.CAUSES if found.get(cause)},
    }


def _within(states: Sequence[State], now: float, window: float) -> float | None:
    """The goodput since the oldest sample within the window."""
    productive = total = 0.0
    for state in states:
        samples = state.account.samples
        first = next((each for each in samples if each.at >= now - window - MINUTE), Sample(now, 0.0, 0.0))
        is_whole = state.began_at >= now - window or first.at == now
        productive += seconds(state, now).get(causes.PRODUCTIVE, 0.0) - (0.0 if is_whole else first.productive)
        total += wall(state, now) - (0.0 if is_whole else first.wall)
    return _ratio(productive, total)


def _ratio(productive: float, total: float) -> float | None:
    return min(1.0, max(0.0, productive / total)) if total > 0 else None


# -- for the next master --------------------------------------------------------------------------------------------
def saved(state: State) -> dict[str, object]:
    """The account as of now, with unix times."""
    offset = state.unix_offset
    return {
        "seconds": {cause: round(spent, 6) for cause, spent in seconds(state, state.now).items()},
        "wall": round(wall(state, state.now), 6),
        "until": state.now + offset,
        "stages": [fault.stages for fault in state.faults.noted],
        "samples": [[round(each.at + offset, 1), round(each.productive, 1), round(each.wall, 1)]
                    for each in state.account.samples],
    }  # fmt: skip


def restore(state: State, kept: dict[str, Any]) -> None:
    """Takes over an earlier master's account. What was spent since it was saved last is unknown; nothing is known of
    what an older release did."""
    if not kept:
        return
    account, offset = state.account, state.unix_offset
    account.seconds = {str(cause): float(spent) for cause, spent in kept.get("seconds", {}).items()}
    account.wall = float(kept.get("wall", 0.0))
    gap = max(0.0, state.now - (float(kept.get("until", state.now + offset)) - offset)) * state.target
    account.seconds[causes.UNKNOWN] = account.seconds.get(causes.UNKNOWN, 0.0) + gap
    account.wall += gap
    for fault, stages in zip(reversed(state.faults.noted), reversed(kept.get("stages", ())), strict=False):
        fault.stages = {str(stage): float(took) for stage, took in stages.items()}
    for at, productive, total in kept.get("samples", ()):
        account.samples.append(Sample(min(at - offset, state.now), productive, total))
