"""Decides how many members a job should have, from measurements of its steps.

A size is better than a smaller one if each additional member adds at least `min_gain` times the throughput of a member
at the smaller size: 1 is linear growth, and with 0 the most samples per second win at any cost. The search doubles the
size while that pays. Then it halves the (logarithmic) distance to the better side, as found by a parabola through the
best three sizes, until no remaining size could be more than a few percent better. Then the size is kept and still
measured: its throughput may change, and then the measurements of the other sizes are no longer valid.

Measurements are noisy, so each has a standard error. A trial ends as soon as it is clear whether its size is better, at
the latest after 40 steps; the job returns to another size only if that was clearly better.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log, sqrt
from typing import NamedTuple

from outrider.master.core.state.scaling import START, Rate, Search
from outrider.master.core.text import counted

CONTINUE, MAX_METRIC, MAX_REPLICAS = "Continue", "ReachMaxMetric", "ReachMaxReplicas"
WINDOW = 20
"""Steps in a window; every decision takes at most two windows."""
FEWEST, FIRST = 5, 10
"""Fewest steps before a decision: at any size, and at the first size, with which others are compared."""
CLEAR = 3.0
"""Standard errors from which a difference is clear: with 5 steps, a doubling of the rate through noise of 20 %."""
NEAR = 1.25
"""Ratio of two sizes up to which a size between them is not worth two generations."""
CHANGED, TWICE = 0.10, 2
"""A size's rate has changed if this many successive windows differ by more than this fraction, and clearly."""
WORTH = 0.01
"""Smallest gain by the parabola, as the log of the rate's ratio, that is worth a trial."""
STEEP = 0.6
"""A doubling that gains more than this, counted from `min_gain`, leaves no better size below it."""
REMEMBERED = 400
"""The most steps that a measurement counts for: older ones fade."""


class Limits(NamedTuple):
    """The sizes that a job may have, in members."""

    least: int
    most: int
    unit: int = 1

    def sizes(self) -> range:
        """All allowed sizes; empty if no multiple of the unit lies between the limits."""
        return range(ceil(self.least / self.unit) * self.unit, self.most + 1, self.unit)

    def within(self, members: int) -> int:
        """The largest allowed size with at most so many members, or else the smallest allowed one."""
        allowed = self.sizes()
        return min(max(members // self.unit * self.unit, allowed[0]), allowed[-1])

    def nearest(self, size: float) -> int:
        allowed = self.sizes()
        units = round(size / self.unit) * self.unit
        return min(max(units, allowed[0]), allowed[-1])


class Policy(NamedTuple):
    """The user's settings for autoscaling."""

    min_gain: float = 0.5
    """Smallest gain of each additional member, as a fraction of a member's throughput at the smaller size."""
    cooldown: float = 30.0
    """Seconds from one change of size to the next, at least."""
    evaluation: float = 1800.0
    """Seconds from the end of a search to the next, unless the rate changes."""
    noise: float = 0.0
    """The gradient noise scale (McCandlish et al. 2018), in samples; 0: statistical efficiency is ignored."""
    batch: float = 0.0
    """Samples in a member's part of a step; 0: unknown, or the same for any number of members."""

    def worth(self, size: int) -> float:
        """The statistical efficiency (Pollux, Qiao et al. 2021) of a sample in a step of so many members.

        It approaches 1 for small batches, and falls as the global batch grows.
        """
        return self.noise / (self.noise + self.batch * size) if self.noise and self.batch else 1.0


class Decision(NamedTuple):
    size: int
    condition: str
    reason: str
    """One sentence for the Event and the status."""


# -- measuring ------------------------------------------------------------------------------------------------------
def measured(search: Search, size: int, window: Rate) -> None:
    """Adds a window to the measurement of a size.

    `window`: the steps since the last window, without those of the warm-up, of saves and of evaluations.
    """
    before = search.known.get(size)
    if before is None or search.settled is None or not _has_changed(before, window):
        search.odd = 0
        search.known[size] = window if before is None else _together(before, window)
        return
    search.odd += 1
    if search.odd == TWICE:
        _forget(search)
        search.known[size] = window


def _has_changed(before: Rate, now: Rate) -> bool:
    return abs(now.samples / before.samples - 1) > max(CHANGED, CLEAR * _error(now, before))


def _forget(search: Search) -> None:
    search.known, search.aside, search.settled, search.base, search.odd, search.patience = {}, {}, None, 0, 0, 0.0


def _together(before: Rate, window: Rate) -> Rate:
    old = min(before.steps, REMEMBERED)
    steps = old + window.steps
    share = window.steps / steps
    samples = before.samples * (1 - share) + window.samples * share
    return Rate(samples, sqrt(((1 - share) * before.error) ** 2 + (share * window.error) ** 2), steps, window.at)


def error_of(spread: float, steps: int) -> float:
    """The relative standard error of the median of `steps` durations whose logarithms have the sigma `spread`.

    1.2533 is sqrt(pi / 2), the factor for normal distributions.
    """
    return 1.2533 * max(spread, 0.02) / sqrt(steps)


def _error(one: Rate, other: Rate) -> float:
    return sqrt(one.error**2 + other.error**2)


# -- comparing ------------------------------------------------------------------------------------------------------
def gain(known: Mapping[int, Rate], less: int, more: int) -> float:
    """The gain of each member beyond `less`, as a fraction of a member's throughput at size `less`."""
    return (known[more].samples / known[less].samples - 1) / (more / less - 1)


def _clearness(known: Mapping[int, Rate], one: int, other: int, min_gain: float) -> float:
    """By how many standard errors the larger of two sizes is better; negative: the smaller one is better."""
    less, more = min(one, other), max(one, other)
    ratio = known[more].samples / known[less].samples
    needed = 1 + min_gain * (more / less - 1)
    return log(ratio / needed) / max(_error(known[less], known[more]), 1e-6)


def best(known: Mapping[int, Rate], min_gain: float) -> int:
    """The best of the measured sizes."""
    found, *others = sorted(known)
    for size in others:
        if gain(known, found, size) > min_gain:
            found = size
    return found


def next_trial(known: Mapping[int, Rate], limits: Limits, min_gain: float) -> int | None:
    """The next size that may be better than the best measured one; None if there is none."""
    top = best(known, min_gain)
    below = max((size for size in known if size < top), default=None)
    above = min((size for size in known if size > top), default=None)
    first, last = limits.sizes()[0], limits.sizes()[-1]
    if above is None and top < last:
        return limits.nearest(top * 2)
    if above is not None and below is not None:
        return _beside(known, below, top, above, limits, min_gain)
    if above is not None:
        return limits.nearest(top / 2) if top > first else _halfway(top, above, known, limits)
    if below is not None:
        steep = log(known[top].samples / known[below].samples) / log(top / below) - min_gain
        return None if steep > STEEP * (1 - min_gain) else _halfway(top, below, known, limits)
    return limits.nearest(top / 2) if top > first else None


def _beside(known: Mapping[int, Rate], below: int, top: int, above: int, limits: Limits, min_gain: float) -> int | None:
    """A size on the side where the parabola through three sizes has its maximum, if the gain is worth a trial."""
    (x, y), (_, _), (x2, y2) = (
        (log(size / top), log(known[size].samples / known[top].samples) - min_gain * log(size / top))
        for size in (below, top, above)
    )
    slope = (y2 * x**2 - y * x2**2) / (x * x2 * (x - x2))
    bend = (y - slope * x) / x**2
    if bend >= 0 or slope**2 / (-4 * bend) < WORTH:
        return None
    return _halfway(top, above if slope > 0 else below, known, limits)


def _halfway(top: int, side: int, known: Mapping[int, Rate], limits: Limits) -> int | None:
    if max(top, side) / min(top, side) <= NEAR:
        return None
    size = limits.nearest(sqrt(top * side))
    return None if size in known else size


# -- deciding -------------------------------------------------------------------------------------------------------
def decide(search: Search, size: int, limits: Limits, policy: Policy, now: float) -> Decision:
    """The size that the job should have, after each window at its present `size`."""
    rate = search.known.get(size)
    if rate is None or not _is_enough(search, size, limits, policy):
        return Decision(size, CONTINUE if search.base else START, f"{counted(size, 'member')}: measuring.")
    if search.settled is not None and now >= next_evaluation(search, policy):
        search.aside = {
            other: search.known.pop(other) for other in _neighbours(_worth(search, size, limits, policy), size)
        }
        search.settled, search.patience = None, 2 * max(search.patience, policy.evaluation)
    if search.settled is not None:
        return _stay(search, size, limits, policy)
    return _search_on(search, size, limits, policy, now)


def _worth(search: Search, size: int, limits: Limits, policy: Policy) -> dict[int, Rate]:
    """The weighted measurements of sizes that are allowed now: users may have edited the limits, or room may lack."""
    return {
        other: rate._replace(samples=rate.samples * policy.worth(other))
        for other, rate in search.known.items()
        if other == size or other in limits.sizes()
    }


def next_evaluation(search: Search, policy: Policy) -> float:
    """When the sizes beside the best one are tried again."""
    return (search.settled or 0.0) + max(search.patience, policy.evaluation)


def _neighbours(known: Mapping[int, Rate], size: int) -> list[int]:
    below, above = [other for other in known if other < size], [other for other in known if other > size]
    return [*([min(above)] if above else []), *([max(below)] if below else [])]


def _is_enough(search: Search, size: int, limits: Limits, policy: Policy) -> bool:
    """Whether a decision is possible: after two windows, or earlier if the difference is clear."""
    rate = search.known[size]
    known = _worth(search, size, limits, policy)
    if search.base == size or search.base not in known:
        return rate.steps >= FIRST
    if rate.steps >= 2 * WINDOW:
        return True
    return rate.steps >= FEWEST and abs(_clearness(known, search.base, size, policy.min_gain)) > CLEAR


def _search_on(search: Search, size: int, limits: Limits, policy: Policy, now: float) -> Decision:
    if size in search.aside:
        _tried_again(search, size)
    known = _worth(search, size, limits, policy)
    top = best(known, policy.min_gain)
    again = next((other for other in search.aside if other in limits.sizes()), None)
    trial = again or next_trial(known, limits, policy.min_gain)
    if trial is None and (top == size or abs(_clearness(known, top, size, policy.min_gain)) < 1):
        search.settled, search.base = now, size
        return _stay(search, size, limits, policy)
    if now < search.changed + policy.cooldown:
        return Decision(size, CONTINUE, f"{_sentence(known, size, top)}; the last change was too recent.")
    search.base, search.changed = top, now
    if trial is None:
        search.settled, search.base = now, top
        return Decision(top, MAX_METRIC, f"{_sentence(known, size, top)}: back to {top}.")
    tried = f"{counted(trial, 'member')} {'is' if trial == 1 else 'are'} tried"
    return Decision(trial, CONTINUE, f"{_sentence(known, size, top)}: {tried}.")


def _tried_again(search: Search, size: int) -> None:
    """Merges the new measurement of a size; if its rate has changed, drops those of the other sizes."""
    before, rate = search.aside.pop(size), search.known[size]
    if not _has_changed(before, rate):
        search.known[size] = _together(before, rate)
        return
    search.known = {other: search.known[other] for other in (search.base, size) if other in search.known}
    search.aside, search.patience = {}, 0.0


def _stay(search: Search, size: int, limits: Limits, policy: Policy) -> Decision:
    condition = MAX_REPLICAS if size == limits.sizes()[-1] else MAX_METRIC
    known = _worth(search, size, limits, policy)
    others = [other for other in known if other != size]
    near = min(others, key=lambda other: abs(log(other / size)), default=size)
    return Decision(size, condition, f"{_sentence(known, near, size)}: the size stays.")


def _sentence(known: Mapping[int, Rate], size: int, top: int) -> str:
    if size == top or not {size, top} <= known.keys():
        return _makes(known, top if top in known else size)
    less, more = min(size, top), max(size, top)
    return (
        f"{_makes(known, more)} and {less} {'makes' if less == 1 else 'make'} {known[less].samples:.4g}, so each "
        f"additional member adds {gain(known, less, more):.2f} of the throughput that one member has at size {less}"
    )


def _makes(known: Mapping[int, Rate], size: int) -> str:
    return f"{counted(size, 'member')} {'makes' if size == 1 else 'make'} {known[size].samples:.4g} samples/s"
