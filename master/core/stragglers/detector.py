"""Finds stragglers during training by comparing each rank's own time with that of the others at the same steps.

Ranks that meet in every step take equally long for it, so only what a rank does by itself (`OwnTime`) shows a slow one:
the gap before its first collective, and the time for which its main thread is busy. For each of the two the excess over
the others' median is taken. The larger excess, on top of what the others need, gives the rank's factor. A member is
named if one of its ranks has a factor above 1.3 in three windows in a row, for 30 s and 8 steps, and if that costs
something: 5 % of a step and 1 ms. If the whole job becomes slower, no member is slower than the others. Only ranks that
call the same collectives are compared, because the stages of a pipeline always differ.

If steps vary by themselves (sequences of all lengths), three slow windows may be chance. So the detector estimates how
much the windows of this job's ranks differ from one to the next. A run of slow windows must stand out from that: the
longer the run, the less it takes. One window that falls short by no more than that does not end the run.

A window is judged once all ranks that reported the window before have reported it, so a report costs O(1) and a window
O(n log n). Without a verdict (no recorder, one member, invalid times) `Comparison` has the reason.
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
"""Windows in a row before a member is named or is no longer named, and seconds from the first to the last window of a
run: contention that ends within half a minute is not a fault that could be repaired."""
FEWEST_STEPS = 8
"""Steps from the first window of a run to its last. If steps are long, a window has two of them, and three such windows
are too few to tell slowness from three pauses."""
MOST_TIMES = 2.0
"""The highest factor that one window counts for, because one pause can make two steps arbitrarily slow. This and
FEWEST_STEPS are from simulated jobs: without them nearly all false alarms were in windows of two steps."""
STANDS_OUT = 5.5
"""Standard errors by which the mean logarithm of a run's factors must exceed 0: with 4.5 the benchmark has five times
the false alarms."""
ALWAYS = 0.05
"""Sigma of the logarithm of the factor by which healthy members differ for minutes."""
LONGEST_RUN = 16
OPEN = 3
"""Open windows that wait for late ranks; a rank that has not reported by then is not waited for any longer. Ranks that
meet in every step are never ahead of each other, so a rank that leaves out as many windows and reports later ones is
not believed until other ranks report those too."""
AHEAD = "it reports steps that no other member has made"
LONGEST = 86_400.0
RECORDER_AND_CPU, RECORDER, CPU, NO_SOURCE = "recorder and cpu", "recorder", "cpu", "none"
MANY = 64
"""Number of members from which one of them does not move a median, which is then computed once for all."""
TIMES = tuple(
    each.name for each in fields(OwnTime) if each.name not in ("local_rank", "first_step", "steps", "source", "shape")
)
COUNTED = ("throttled", "stolen", "waited", "delayed", "cpu")
PARTS = (*COUNTED, "idle")
"""The parts of a slow member's time. `idle`: the part of its gap in which its main thread is not busy."""


def take(comparison: Comparison, member: MemberId, windows: tuple[OwnTime, ...], ranks: int) -> list[Named]:
    """Takes the windows of a report; the generation has `ranks` ranks. Returns the members whose naming changes."""
    for window in windows:
        problem = wrong(window)
        if problem:
            comparison.problems[member] = problem
            continue
        comparison.sources[member] = window.source
        if window.source != NO_SOURCE:
            _store(comparison, (member, window.local_rank), window)
    found: list[Named] = []
    while (step := _due(comparison, ranks)) is not None:
        window_of_all = comparison.open.pop(step)
        found += _judge(comparison, window_of_all)
        comparison.judged = step
        _note_ahead(comparison, window_of_all)
    return found


def _store(comparison: Comparison, key: Key, window: OwnTime) -> None:
    """Stores a window. A rank that is late for the window judged last is waited for in the next one."""
    step = window.first_step
    if step == comparison.judged:
        comparison.reporters |= {key}
    elif step > comparison.judged and comparison.ahead[key] >= OPEN and step not in comparison.open:
        comparison.aside[key], comparison.problems[key[0]] = window, AHEAD
    elif step > comparison.judged:
        if step not in comparison.open:
            comparison.open[step] = {key: own for key, own in comparison.aside.items() if own.first_step == step}
        comparison.open[step][key] = window


def _note_ahead(comparison: Comparison, judged: dict[Key, OwnTime]) -> None:
    """Counts which ranks are ahead: they left out the window that was just judged, and reported a later one."""
    later = {key for window in comparison.open.values() for key in window} - judged.keys()
    comparison.ahead = Counter({key: comparison.ahead[key] + (key in later) for key in comparison.ahead.keys() | later})
    for key in judged:
        comparison.ahead.pop(key, None)
        comparison.aside.pop(key, None)
    disbelieved = {key for key, count in comparison.ahead.items() if count >= OPEN}
    for step, window in list(comparison.open.items()) if disbelieved else ():
        comparison.open[step] = {key: own for key, own in window.items() if key not in disbelieved}
        if not comparison.open[step]:
            del comparison.open[step]


def wrong(window: OwnTime) -> str:
    """Why these times are invalid, as a clause; empty if they are valid."""
    for name in TIMES:
        value = getattr(window, name)
        if not 0 <= value <= LONGEST:
            return f"its {name} of {value:g} s a step is not a valid time"
    if window.step_seconds <= 0:
        return "its steps take 0 s"
    if window.gap > 1.01 * window.step_seconds:
        return f"its gap of {window.gap:g} s is longer than its step of {window.step_seconds:g} s"
    return ""


def _due(comparison: Comparison, ranks: int) -> int | None:
    """The oldest window, if it or a later one is complete, or too many are open."""
    if not comparison.open:
        return None
    expected = len(comparison.reporters) or ranks
    is_complete = any(
        len(each) >= expected and comparison.reporters <= each.keys() for each in comparison.open.values()
    )
    return min(comparison.open) if is_complete or len(comparison.open) > OPEN else None


# -- one window ---------------------------------------------------------------------------------------------------
def _judge(comparison: Comparison, window: dict[Key, OwnTime]) -> list[Named]:
    alike: dict[tuple[int, str], dict[Key, OwnTime]] = {}
    for key, own in sorted(window.items()):
        alike.setdefault((own.shape, own.source), {})[key] = own
    comparison.reporters = frozenset(window)
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
                comparison.problems[member] = "no other member calls the same collectives, so it is not compared"
    return _note(comparison, paces, of_two)


def compare(ranks: dict[Key, OwnTime]) -> dict[Key, Lag]:
    """Compares each rank with those of the other members, all of which call the same collectives."""
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
        gap, busy_of_others = others[key[0]]
        base = max(gap, busy_of_others, 1e-6)
        beyond = _beyond(own, gap, busy_of_others)
        level = log(max(own.gap, own.busy, 1e-6)) if own.source != CPU else log(max(own.busy, 1e-6))
        pace = Lag(base + max(beyond), base, step, own.first_step, level=level)
        if pace.is_slow:
            if not usual or len(mine) < MANY:
                usual = _usual(ranks, key[0])
            more = tuple(getattr(own, part) - what for part, what in zip(COUNTED, usual, strict=True))
            pace = replace(pace, more=(*more, _idle(own, gap, busy_of_others)))
        found[key] = pace
    return found


def _usual(ranks: dict[Key, OwnTime], member: MemberId) -> tuple[float, ...]:
    """The medians of the other members' COUNTED parts."""
    others = [own for key, own in ranks.items() if key[0] != member]
    return tuple(median(getattr(own, part) for own in others) for part in COUNTED)


def _idle(own: OwnTime, gap: float, busy: float) -> float:
    if own.source != RECORDER_AND_CPU:
        return 0.0
    return max(0.0, own.gap - gap - max(0.0, own.busy - busy))


def _beyond(own: OwnTime, gap: float, busy: float) -> tuple[float, ...]:
    """Seconds a step beyond the others for each value that the source provides; negative if the rank is faster."""
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
    """Counts the slow windows of each rank. A window without a rank changes nothing for that rank."""
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
    comparison.cost = max((pace.excess / pace.step for pace in slowest.values() if pace.is_slow), default=0.0)
    return found + _no_longer(comparison, slowest)


def _spread(comparison: Comparison, paces: dict[Key, Lag]) -> float:
    """Sigma of the logarithm of one window's factor. It has two parts: what healthy ranks need varies (the median
    change to the next window is 0.95 sigma), and so does the median of the others."""
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
