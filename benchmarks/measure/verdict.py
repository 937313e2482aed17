"""Checks a new generation: it must resume right after the checkpoint, with the same losses and no old processes."""

from __future__ import annotations

import math
import time
from pathlib import Path

from measure.processes import Watch
from measure.steps import Step, Trace, loss_differences

SAME_LOSS = 1e-4
"""A repeated step in a world of the same size differs by rounding; without the state it differs by a hundred times
this."""


def faults_of(trace: Trace, old: set[int], world: list[Step], watch: Watch, frozen: set[int]) -> list[str]:
    """What is wrong with the new world, one sentence each; nothing in the good case.

    `frozen` processes may live on: they are stopped, and what they hold is not the new world's.
    """
    wrong = []
    if any(step.loaded == 0 or step.step != step.loaded + 1 for step in world):
        wrong.append("does not continue after a checkpoint: " + str([(s.rank, s.loaded, s.step) for s in world]))
    newest = max(step.step for step in world)
    if newest > trace.highest(old) + 1:
        wrong.append(f"skips steps: begins with {newest}, the old world ended at {trace.highest(old)}")
    differences = loss_differences(trace, old, world)
    if any(difference > SAME_LOSS for difference in differences):
        wrong.append(f"losses of repeated steps differ by up to {max(differences):.5f}")
    if not all(math.isfinite(step.loss) and step.loss < first_loss(trace, old) for step in world):
        wrong.append(f"the losses {[round(s.loss, 4) for s in world]} are those of an untrained model")
    if alive := set(watch.alive_at(min(step.time for step in world))) - frozen:
        wrong.append(f"old processes alive at the first new step: {sorted(alive)}")
    return wrong


def first_loss(trace: Trace, old: set[int]) -> float:
    """The smallest loss that any rank had at its very first step."""
    return min(trace.by_pid[pid][0].loss for pid in old)


def loads(path: Path) -> bool:
    """Whether the checkpoint can be read. A plain save is written in place, so a reader may meet it half way: three
    tries."""
    import torch  # seconds, which who only reads traces does not need

    for _ in range(3):
        try:
            torch.load(path)
            return True
        except (RuntimeError, EOFError, OSError):
            time.sleep(0.2)
    return False
