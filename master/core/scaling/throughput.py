"""Measures how fast a generation trains, in windows of steps that one of its ranks reports once a second.

Ranks step together, so one rank is enough. The time between two reports counts if both show the phase `step`: a save or
an evaluation that a report has seen is left out, and one that ended between two reports does not move the median.
Samples are known if a DataLoader of torch makes the batches; otherwise a rank's step counts as one sample, which is
enough to compare sizes. If the hooks see no steps, log lines may report them (`note_line`).
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from outrider.master.core.scaling import size_policy
from outrider.master.core.state.scaling import Meter, Rate
from outrider.wire.messages.report import RankProgress

WARM_UP = 3
"""First steps of a generation that are not measured: memory is being allocated, kernels are being chosen."""
FEWEST_SEEN = 5
"""Fewest reports with new steps in a window."""
STEPPING = "step"


def note(meter: Meter, row: RankProgress, ranks: int, now: float) -> Rate | None:
    """Adds a report; returns the rate once a window is complete, else None.

    `row`: the progress of one rank. `ranks`: the world size.
    """
    if row.phase != STEPPING or row.step_age < 0:
        meter.before = None
        return None
    if meter.first is None:
        meter.first = row.step
    here, before = (row.step, now - row.step_age, row.samples), meter.before
    if row.step < meter.first + WARM_UP or before is None or row.step < before[0]:
        meter.before = here
        return None
    made, seconds = row.step - int(before[0]), here[1] - before[1]
    if made and seconds > 0:
        meter.before = here
        meter.steps += made
        meter.step_seconds.append(seconds / made)
        meter.step_samples.append(max(0, here[2] - before[2]) / made)
    if meter.steps < size_policy.FEWEST or len(meter.step_seconds) < FEWEST_SEEN:
        return None
    return _window(meter, ranks, now)


def note_line(meter: Meter, line: Mapping[str, float], ranks: int, at: float) -> Rate | None:
    """Adds the numbers of a line of rank 0's log; returns the rate once a window is complete, else None.

    The number of steps since the line before is more reliable than the latency, which is the time of the last step
    alone. Steps before the second line belong to the warm-up.
    """
    step, before, is_first = line.get("step"), meter.before, meter.first is None
    if step is not None:
        meter.before, meter.first = (step, at, 0), 0
        if before is None or step <= before[0] or at <= before[1]:  # another epoch, or a late line
            return None
        meter.steps += max(1, round(step - before[0]))
        meter.step_seconds.append((at - before[1]) / (step - before[0]))
    elif "latency" in line:
        meter.first = 0
        if is_first:
            return None
        meter.steps += 1
        meter.step_seconds.append(line["latency"])
    else:
        return None
    meter.step_samples.append(1.0)
    enough = meter.steps >= size_policy.FEWEST and len(meter.step_seconds) >= FEWEST_SEEN
    return _window(meter, ranks, at) if enough else None


def _window(meter: Meter, ranks: int, now: float) -> Rate:
    middle = median(meter.step_seconds)
    spread = 1.4826 * median(abs(each - middle) for each in meter.step_seconds) / middle
    meter.batch = 0.0 if meter.of_lines else median(meter.step_samples)
    rate = ranks * (meter.batch or 1.0) / middle
    error, steps = size_policy.error_of(spread, len(meter.step_seconds)), meter.steps
    meter.steps, meter.step_seconds, meter.step_samples = 0, [], []
    return Rate(rate, error, steps, now)
