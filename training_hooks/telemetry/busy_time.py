"""Measures how long a rank is busy by itself in a step, excluding the wait for other ranks.

It uses the ends of steps, the core time of the main thread between them, and the creation times of the collectives.
Ranks that synchronize in every step take equally long for it, so the duration of a step does not identify the slow
rank. Nor does the time of data loading and forward measured in the script: with BatchNorm's broadcast it contains the
wait for the slowest rank. A rank's own work is in the *gap* before its first collective of the step (PyTorch's Flight
Recorder has that time), and in the *busy* time of its main thread: running, waiting for a core, or waiting for its
DataLoader. While a rank waits for others it does neither. The two overlap, and neither is enough: data that does not
come from a DataLoader is only in the gap, and with BatchNorm or FSDP's first gather the gap ends where the work begins.

A container that its CPU limit throttles stops once in a tenth of a second, and most shorter steps do not contain such a
stop. Hence the cost of the limit is a mean, everything else a median.

That a waiting thread does not run is true for gloo. With a GPU the main thread may spin while it waits, so there only
the gap counts. Without a recorder only the busy time counts.

Windows are chosen by step number alone, so that all ranks measure the same steps without an agreement. `stride` is a
power of two, so a rank with another stride still shares every second window.
"""

import bisect
import zlib
from collections import Counter, namedtuple

EVERY = 15.0
"""Most seconds between windows; with short steps at least more than half of it."""
SHORTEST, LONGEST = 2, 1 << 24
MOST = 8
RECORDER_AND_CPU, RECORDER, CPU, NOTHING = 1, 2, 3, 4

Mark = namedtuple("Mark", "at cpu delay waited spoiled ends")
"""The end of a step, in nanoseconds. `at`: the time. `cpu`, `delay`: how long the thread had run and had waited for a
core by then. `waited`: its wait for its DataLoader since the mark before. `spoiled`: whether a checkpoint or an
evaluation happened since then. `ends`: the ends of other optimizers' steps since then (a GAN loads its data after any
of them)."""
Own = namedtuple("Own", "source steps gap busy step shape cpu waited delayed throttled")
"""One window: medians per step in nanoseconds, but the mean for `throttled`. `shape` identifies the collectives of a
step by name and order; only ranks with equal shapes are comparable."""


def stride(step_seconds):
    """The number of steps at whose multiples windows begin."""
    found = SHORTEST
    while found < LONGEST and 2 * found * step_seconds <= EVERY:
        found *= 2
    return found


def count(stride):
    """The number of steps in a window. If it equals the stride, windows follow each other without a break."""
    return min(MOST, stride)


def _median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def shape(names):
    return zlib.crc32("\n".join(names).encode())


def measure(marks, created, beside_gpu, throttled=0.0):
    """The Own of these marks, or None if too few of their steps count. `created`: (nanoseconds on the marks' clock,
    name) of the recorder's entries, oldest first; empty without a recorder. `throttled`: the share of the time in which
    the container's limit stopped this process."""
    rows, shapes = [], Counter()
    for before, after in zip(marks, marks[1:]):  # noqa: RUF007 (Python 3.8)
        if after.spoiled or (created and created[0][0] > before.at):
            continue
        inside = [(at, name) for at, name in created if before.at < at <= after.at]
        shapes[shape([name for _, name in inside])] += 1
        rows.append(_of_step(before, after, [at for at, _ in inside]))
    if not rows or 2 * len(rows) < len(marks) - 1 or any(step <= 0 for step, *_ in rows):
        return None
    source = _source(created, beside_gpu)
    if source == NOTHING:
        return Own(NOTHING, len(rows), 0, 0, _median([row[0] for row in rows]), 0, 0, 0, 0, 0)
    kept_off = int(throttled * sum(row[0] for row in rows) / len(rows))
    busy = 0 if source == RECORDER else _busy(rows, kept_off)
    step, gap, cpu, waited, delay = (_median(column) for column in zip(*rows))
    gap = 0 if source == CPU else gap
    return Own(source, len(rows), gap, busy, step, shapes.most_common(1)[0][0], cpu, waited, delay, kept_off)


def _busy(rows, kept_off):
    """The busy times; throttled time is part of the wait for a core, in the steps that contain it."""
    usual = _median([min(row[0], sum(row[2:])) for row in rows])
    return max(usual, _median([min(row[0], row[2] + row[3]) for row in rows]) + kept_off)


def _of_step(before, after, created):
    """(duration, gap, running, waiting for the loader, waiting for a core) of one step."""
    ends = [before.at] + list(after.ends) + [after.at]
    gap = 0
    for end, following in zip(ends, ends[1:]):  # noqa: RUF007 (Python 3.8)
        at = bisect.bisect_right(created, end)
        gap += min(created[at] if at < len(created) else following, following) - end
    return after.at - before.at, gap, max(0, after.cpu - before.cpu), after.waited, max(0, after.delay - before.delay)


def _source(created, beside_gpu):
    if not created:
        return NOTHING if beside_gpu else CPU
    waits_asleep = not beside_gpu and all(name.startswith("gloo:") for _, name in created)
    return RECORDER_AND_CPU if waits_asleep else RECORDER
