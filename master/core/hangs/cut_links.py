"""Replaces one of two disconnected members if no rank makes a step, before that counts as a hang."""

from __future__ import annotations

from outrider.master.core.hangs import limits as hangs_limits
from outrider.master.core.hangs.limits import STEP
from outrider.master.core.network import partition
from outrider.master.core.state.job import State
from outrider.master.core.state.occurrences import MembersCutOff
from outrider.master.core.text import seconds

PATIENCE = 10.0
"""Seconds without a step before a member is replaced: a shorter outage costs less than a replacement."""


def consider(state: State, cut_off: MembersCutOff) -> None:
    """Replaces a member if the steps have stopped too: the broken link explains it."""
    watch, world = state.hangs.watch, state.world
    if watch is None or world is None or watch.generation != world.generation:
        return
    if watch.suspicion is not None:  # the ranks are being asked for their stacks, which may show more
        return
    quiet = state.now - watch.since
    patience = max(PATIENCE, hangs_limits.TIMES[STEP] * partition.slowest_step(state))
    if quiet >= patience and hangs_limits.ruling(watch, state.hangs.pace, state.spec, state.now)[0] == STEP:
        found = partition.at_fault(state, list(cut_off.pairs))
        partition.resolve(state, found, f"No rank has completed a step for {seconds(quiet)}")
