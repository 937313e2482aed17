"""How long a rank is busy by itself in a step. It follows from the moments at which steps ended, what the main thread
used of its core between them, and when the collectives in between were created.

Ranks that meet in every step take equally long for it, so a step's duration names nobody, and neither do data and
forward measured in the script: with BatchNorm's broadcast the wait for the slowest is in them. What a rank does alone
lies in the *gap* before its first collective of the step (PyTorch's Flight Recorder has the moment), and in what keeps
its main thread *busy*: running, waiting for a core, or for its DataLoader. While it waits for others it does neither.
They overlap, and neither is enough: data from elsewhere than a DataLoader is in the gap alone, and with a BatchNorm or
FSDP's first gather the gap ends where the work begins.

A container that is kept off its cores by its CPU limit stands still once in a tenth of a second, and where steps are
shorter most of them do not show it. Hence what its limit costs counts by its mean, all else by its median.

That waiting is no running holds for gloo. Beside a GPU the main thread may spin while it waits, so there the gap alone
counts; where there is no recorder, what keeps the main thread busy.

Windows are chosen by step number alone, so that all ranks measure the same steps and need not agree: `stride` is a
power of two, and who takes another one still has every second window in common.
"""

import bisect
import zlib
from collections import Counter, namedtuple

EVERY = 15.0
"""Seconds between windows at most, and more than half of it at least, where steps are short."""
SHORTEST, LONGEST = 2, 1 << 24
MOST = 8
RECORDER_AND_CPU, RECORDER, CPU, NOTHING = 1, 2, 3, 4

Mark = namedtuple("Mark", "at cpu delay waited spoiled ends")
"""The end of a step, in nanoseconds: the moment; what the thread had run and had waited for a core by then; what it
waited for its DataLoader since the mark before; whether a checkpoint or an evaluation lies since then; and when other
optimizers' steps ended since then (a GAN loads its data behind any of them)."""
Own = namedtuple("Own", "source steps gap busy step shape cpu waited delayed throttled")
"""One window; medians a step, in nanoseconds, but for the mean `throttled`. `shape`: which collectives a step has, by
name and order, as a number: only ranks with equal ones are alike."""


def stride(step_seconds):
    """Windows begin at its multiples."""
    found = SHORTEST
    while found < LONGEST and 2 * found * step_seconds <= EVERY:
        found *= 2
    return found


def count(stride):
    """Steps of a window. Where the stride is no more, windows follow each other without a break."""
    return min(MOST, stride)


def _median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def shape(names):
    return zlib.crc32("\n".join(names).encode())


def measure(marks, created, beside_gpu, throttled=0.0):
    """The Own of these marks, None where too few of their steps count. `created`: (nanoseconds on the marks' clock,
    name) of the recorder's entries, oldest first; empty where there is no recorder. `throttled`: the share of the time
    in which the container's limit held this process up."""
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
    """What the limit keeps it off is a part of its wait for a core, in the steps that show it."""
    usual = _median([min(row[0], sum(row[2:])) for row in rows])
    return max(usual, _median([min(row[0], row[2] + row[3]) for row in rows]) + kept_off)


def _of_step(before, after, created):
    """(duration, gap, run, waited for the loader, waited for a core)."""
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
