"""Who is slow while training: each rank's own time, compared with that of the others at the same steps.

Ranks that meet in every step take equally long for it, so only what a rank does by itself tells (`OwnTime`): the gap
before its first collective, and what keeps its main thread busy. The excess of the larger of the two over the others'
medians, on top of what the others need, is its factor. A member is named when one of its ranks is more than 1.3 times
slower in three windows running, for 30 s and 8 steps, if that costs something: 5 % of a step and 1 ms. What the whole
job does makes nobody slower than the others. Only ranks that call the same collectives are compared: a pipeline's
stages differ for ever.

Where steps differ by themselves (sequences of all lengths) three windows may come about by chance. So it is estimated
by how much the windows of this job's ranks differ from one to the next: a run must stand out from that, which it does
the sooner the longer it is, and one window that falls short by no more than that does not end it.

A window is judged once everybody has told it who told the one before, so a report costs O(1) and a window O(n log n).
Where it fails (no recorder, one member, times that are none) there is no verdict, and `Comparison` knows why.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import fields, replace
from math import log, sqrt
from statistics import median

from outrider.master.core.state import stragglers as state_stragglers
from outrider.master.core.state.stragglers import Comparison, Key, Lag, Named
from outrider.wire.ids import MemberId
from outrider.wire.messages.report import OwnTime

RUNNING, LASTING = 3, 30.0
"""Windows in a row, to be named and to be taken back, and the seconds from the first to the last of a run: contention
that is over within half a minute is nobody's fault that could be put right."""
FEWEST_STEPS = 8
"""From the first window of a run to its last. Where steps are long a window has two of them, and three such windows are
too few to tell slowness from three pauses."""
MOST_TIMES = 2.0
"""The most that one window counts for, because one pause makes two steps as slow as you like. Both numbers are from
made-up jobs: without them nearly all false alarms were in windows of two steps."""
STANDS_OUT = 5.5
"""Standard errors of the mean logarithm of a run's factors: with 4.5 the benchmark has five times the false alarms."""
ALWAYS = 0.05
"""Sigma of the logarithm by which healthy members differ for minutes."""
LONGEST_RUN = 16
OPEN = 3
"""Windows that are waited for: who does not tell one is not waited for longer. Ranks that meet in every step are never
ahead of each other, so who leaves out as many and tells later ones is not believed until others tell them too."""
AHEAD = "it tells of steps that no other member has made"
LONGEST = 86_400.0
RECORDER_AND_CPU, RECORDER, CPU, NO_SOURCE = "recorder and cpu", "recorder", "cpu", "none"
MANY = 64
"""Members from which on one of them does not move a median: it is computed once for all."""
TIMES = tuple(
    each.name for each in fields(OwnTime) if each.name not in ("local_rank", "first_step", "steps", "source", "shape")
)
COUNTED = ("throttled", "stolen", "waited", "delayed", "cpu")
PARTS = (*COUNTED, "idle")
"""Where a slow member's time goes. `idle`: what lies in its gap and keeps its main thread not busy."""


def take(comparison: Comparison, member: MemberId, windows: tuple[OwnTime, ...], ranks: int) -> list[Named]:
    """What a report brings; `ranks` are those of the world. Returns who is named, and who is no more."""
    for window in windows:
        problem = wrong(window)
        if problem:
            comparison.problems[member] = problem
            continue
        comparison.sources[member] = window.source
        if window.source != NO_SOURCE:
            _keep(comparison, (member, window.local_rank), window)
    found: list[Named] = []
    while (step := _due(comparison, ranks)) is not None:
        told = comparison.open.pop(step)
        found += _judge(comparison, told)
        comparison.judged = step
        _note_ahead(comparison, told)
    return found


def _keep(comparison: Comparison, key: Key, window: OwnTime) -> None:
    """Who comes late to the window that was judged last is waited for in the next."""
    step = window.first_step
    if step == comparison.judged:
        comparison.told |= {key}
    elif step > comparison.judged and comparison.ahead[key] >= OPEN and step not in comparison.open:
        comparison.aside[key], comparison.problems[key[0]] = window, AHEAD
    elif step > comparison.judged:
        if step not in comparison.open:
            comparison.open[step] = {key: own for key, own in comparison.aside.items() if own.first_step == step}
        comparison.open[step][key] = window


def _note_ahead(comparison: Comparison, told: dict[Key, OwnTime]) -> None:
    """After a window that these have told."""
    later = {key for window in comparison.open.values() for key in window} - told.keys()
    comparison.ahead = Counter({key: comparison.ahead[key] + (key in later) for key in comparison.ahead.keys() | later})
    for key in told:
        comparison.ahead.pop(key, None)
        comparison.aside.pop(key, None)
    disbelieved = {key for key, count in comparison.ahead.items() if count >= OPEN}
    for step, window in list(comparison.open.items()) if disbelieved else ():
        comparison.open[step] = {key: own for key, own in window.items() if key not in disbelieved}
        if not comparison.open[step]:
            del comparison.open[step]


def wrong(window: OwnTime) -> str:
    """Why these cannot be times, in a clause; empty where they can."""
    for name in TIMES:
        value = getattr(window, name)
        if not 0 <= value <= LONGEST:
            return f"its {name} of {value:g} s a step is no time"
    if window.step_seconds <= 0:
        return "its steps take no time"
    if window.gap > 1.01 * window.step_seconds:
        return f"its gap of {window.gap:g} s is longer than its step of {window.step_seconds:g} s"
    return ""


def _due(comparison: Comparison, ranks: int) -> int | None:
    """The oldest window, where it or a later one is complete, or too many wait."""
    if not comparison.open:
        return None
    expected = len(comparison.told) or ranks
    is_complete = any(len(told) >= expected and comparison.told <= told.keys() for told in comparison.open.values())
    return min(comparison.open) if is_complete or len(comparison.open) > OPEN else None


# -- one window ---------------------------------------------------------------------------------------------------
def _judge(comparison: Comparison, window: dict[Key, OwnTime]) -> list[Named]:
    alike: dict[tuple[int, str], dict[Key, OwnTime]] = {}
    for key, own in sorted(window.items()):
        alike.setdefault((own.shape, own.source), {})[key] = own
    comparison.told = frozenset(window)
    paces: dict[Key, Lag] = {}
    of_two = False
    for ranks in alike.values():
        members = {member for member, _ in ranks}
        of_two = len(members) == 2
        for member in members:
            comparison.problems.pop(member, None)
        if len(members) > 1:
            paces |= compare(ranks)
        else:
            for member in members:
                comparison.problems[member] = (
                    "no other member calls the same collectives, so there is nobody to compare with"
                )
    return _note(comparison, paces, of_two)


def compare(ranks: dict[Key, OwnTime]) -> dict[Key, Lag]:
    """Each rank beside those of the other members, all of which call the same collectives."""
    gaps, busy = sorted(own.gap for own in ranks.values()), sorted(own.busy for own in ranks.values())
    step = median(own.step_seconds for own in ranks.values())
    mine: dict[MemberId, list[OwnTime]] = {}
    for (member, _), own in ranks.items():
        mine.setdefault(member, []).append(own)
    others = {
        member: (median_without(gaps, [own.gap for own in owns]), median_without(busy, [own.busy for own in owns]))
        for member, owns in mine.items()
    }
    usual: tuple[float, ...] = ()
    found = {}
    for key, own in ranks.items():
        gap, kept = others[key[0]]
        base = max(gap, kept, 1e-6)
        beyond = _beyond(own, gap, kept)
        level = log(max(own.gap, own.busy, 1e-6)) if own.source != CPU else log(max(own.busy, 1e-6))
        pace = Lag(base + max(beyond), base, step, own.first_step, level=level)
        if pace.is_slow:
            if not usual or len(mine) < MANY:
                usual = _usual(ranks, key[0])
            more = tuple(getattr(own, part) - what for part, what in zip(COUNTED, usual, strict=True))
            pace = replace(pace, more=(*more, _idle(own, gap, kept)))
        found[key] = pace
    return found


def _usual(ranks: dict[Key, OwnTime], member: MemberId) -> tuple[float, ...]:
    """Medians of the other members' COUNTED parts."""
    others = [own for key, own in ranks.items() if key[0] != member]
    return tuple(median(getattr(own, part) for own in others) for part in COUNTED)


def _idle(own: OwnTime, gap: float, busy: float) -> float:
    if own.source != RECORDER_AND_CPU:
        return 0.0
    return max(0.0, own.gap - gap - max(0.0, own.busy - busy))


def _beyond(own: OwnTime, gap: float, busy: float) -> tuple[float, ...]:
    """Seconds a step more than the others, of what its source tells. Less, where it is faster."""
    if own.source == RECORDER:
        return (own.gap - gap,)
    if own.source == CPU:
        return (own.busy - busy,)
    return own.gap - gap, own.busy - busy


def median_without(ordered: list[float], taken: list[float]) -> float:
    """The median of a sorted list without some of its values, in O(log n) for each of them."""
    gone: list[int] = []
    for value in sorted(taken):
        at = bisect_left(ordered, value)
        gone.append(max(at, gone[-1] + 1) if gone else at)
    left = len(ordered) - len(gone)

    def nth(index: int) -> float:
        for at in gone:
            index += at <= index
        return ordered[index]

    return (nth((left - 1) // 2) + nth(left // 2)) / 2


# -- window after window ------------------------------------------------------------------------------------------
def _note(comparison: Comparison, paces: dict[Key, Lag], of_two: bool) -> list[Named]:
    """Counts the slow windows of each rank. A window that says nothing of a rank changes nothing."""
    found: list[Named] = []
    slowest: dict[MemberId, Lag] = {}
    spread = _spread(comparison, paces)
    for (member, local_rank), pace in paces.items():
        if member not in slowest or pace.factor > slowest[member].factor:
            slowest[member] = pace
        running = comparison.slow.pop((member, local_rank), [])
        if pace.is_slow or (running and log(pace.factor) > log(state_stragglers.TIMES_THE_OTHERS) - spread):
            running = comparison.slow[member, local_rank] = [*running, pace][-LONGEST_RUN:]
            if member not in comparison.named and _stands_out(running, spread):
                comparison.named[member] = Named(member, local_rank, _mean(running), of_two)
                found.append(comparison.named[member])
    comparison.pace = slowest
    return found + _no_longer(comparison, slowest)


def _spread(comparison: Comparison, paces: dict[Key, Lag]) -> float:
    """Sigma of the logarithm of one window's factor: of what healthy ranks need (the median change to the next window
    is 0.95 of that), and of the others' median that it is compared with."""
    now = {key: pace.level for key, pace in paces.items() if not pace.is_slow}
    changes = [abs(level - comparison.last[key]) for key, level in now.items() if key in comparison.last]
    if changes:
        comparison.changes.append(median(changes))
    comparison.last = now
    others = max(len({member for member, _ in paces}) - 1, 1)
    return sqrt(1 + 1 / others) * median(comparison.changes) / 0.954 if comparison.changes else ALWAYS


def _stands_out(running: list[Lag], spread: float) -> bool:
    first, last, count = running[0], running[-1], len(running)
    if sum(pace.is_slow for pace in running) < RUNNING or not last.is_slow:
        return False
    steps = last.first_step - first.first_step
    if steps < FEWEST_STEPS or steps * last.step < LASTING:
        return False
    mean = sum(log(min(pace.factor, MOST_TIMES)) for pace in running) / count
    return mean >= STANDS_OUT * sqrt(ALWAYS**2 + spread**2 / count)


def _no_longer(comparison: Comparison, slowest: dict[MemberId, Lag]) -> list[Named]:
    found = []
    for member, pace in slowest.items():
        if member not in comparison.named:
            continue
        comparison.fine[member] = 0 if pace.is_slow else comparison.fine.get(member, 0) + 1
        if comparison.fine[member] >= RUNNING:
            before = comparison.named.pop(member)
            del comparison.fine[member]
            found.append(Named(member, before.local_rank, pace, before.of_two, is_over=True))
    return found


def _mean(paces: list[Lag]) -> Lag:
    paces = [pace for pace in paces if pace.is_slow]
    count = len(paces)
    more = tuple(sum(column) / count for column in zip(*(pace.more for pace in paces), strict=True))
    own, others, step = (sum(getattr(pace, name) for pace in paces) / count for name in ("own", "others", "step"))
    return Lag(own, others, step, paces[0].first_step, more)
