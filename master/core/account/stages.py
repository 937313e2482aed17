"""Divides a recovery into its stages, from the fault to the first new step: which of them was slow?

`detect` ends with the order to stop, `stop` when nothing of the old generation runs, `wait` when every member of the
next one is ready, `agree` when that generation is saved and Start is sent, `start` when the last process begins. Then
it imports, meets the others, loads, and ends its `first_step`; `new_step` repeats what had been made before.
"""

from __future__ import annotations

from typing import Final

from outrider.master.core.state.generation import World
from outrider.master.core.state.job import State
from outrider.master.core.text import exactly
from outrider.report.words import STAGES as WHAT

EARLY: Final = {"import": "importing", "rendezvous": "rendezvous", "load": "loading"}
"""The stages that a process reports, by the name of the activity."""


def of_recovery(state: State, world: World, at: float) -> dict[str, float]:
    """The seconds of each stage of the recovery that ends with a new step at this moment; those that are known."""
    outage = state.account.outage
    if outage is None or outage.left_at is None or world.start_sent_at is None:
        return {}
    found = {
        "detect": outage.stop_at - outage.began_at,
        "stop": outage.left_at - outage.stop_at,
        "wait": world.formed_at - outage.left_at,
        "agree": world.start_sent_at - world.formed_at,
    }
    processes = [seat.process for seat in state.account.seats.values() if seat.process is not None]
    stepped = [each for each in processes if each.generation == world.generation and each.first_step_at is not None]
    if stepped:
        last = max(stepped, key=lambda process: process.born_at)
        first_step_at = min(at, last.first_step_at or at)
        early = {stage: last.counted.get(activity, 0.0) for stage, activity in EARLY.items()}
        found |= {"start": last.born_at - world.start_sent_at, **early}
        found |= {"first_step": first_step_at - last.born_at - sum(early.values()), "new_step": at - first_step_at}
    return {stage: round(max(0.0, found[stage]), 3) for stage in WHAT if stage in found}


def slowest(stages: dict[str, float]) -> str:
    """The end of a sentence about lost seconds: the stage that took most of them; empty if some are unknown."""
    if "new_step" not in stages:
        return ""
    stage = max(stages, key=lambda name: stages[name])
    return f", {exactly(stages[stage])} of them {WHAT[stage]}"
