"""What a desired rank index waits for while none of its processes is known to run."""

from __future__ import annotations

from outrider.master.core.account import causes
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import COMMITTING, REBUILDING, RUNNING, STOPPING, State
from outrider.master.core.state.member import Member
from outrider.wire.ids import NO_GENERATION, RankIndex

BY_PHASE = {"init": causes.FIRST_STEP, "checkpoint": causes.CHECKPOINT_STALL, "eval": causes.EVALUATION}


def cause(state: State, index: RankIndex) -> str:
    """The cause of this moment, O(1)."""
    if state.phase == "suspended" or state.placement.suspended:
        return causes.SUSPENDED
    holder = state.placement.holders.get(index)
    member = None if holder is None else state.members.get(holder)
    if state.is_over:
        return causes.STOPPING
    if member is None:
        return causes.WAITING
    if state.stage == REBUILDING:
        return causes.UNKNOWN
    world = state.world
    if world is not None and member.id in world.places:
        if member.finished or member.id in world.done:
            return causes.STOPPING
        if state.stage == COMMITTING:
            is_restoring = world.restoring is not None and world.restoring.orders
            return causes.LOADING if is_restoring else causes.STARTING
        if state.stage == RUNNING:
            return _running(state, world, member)
    return _outside(state, member)


def _running(state: State, world: World, member: Member) -> str:
    """The cause as far as reports say it that have no `Spent`: of older hooks, or before the first one."""
    report = member.report
    if report is not None and report.generation == world.generation and report.ranks:
        return BY_PHASE.get(report.ranks[0].phase, causes.PRODUCTIVE)
    if world.generation.term < state.term:
        return causes.UNKNOWN
    return causes.FIRST_STEP if member.id in world.started else causes.STARTING


def _outside(state: State, member: Member) -> str:
    if member.ready is not None:
        return causes.WAITING if state.number > state.number_before else causes.STARTING
    if member.unschedulable or member.cannot_start:
        return causes.WAITING
    if not member.greeted:
        return causes.STARTING
    has_run = member.ordered != NO_GENERATION and not member.trainer_lost
    return causes.STOPPING if has_run and (state.stage == STOPPING or not member.stopped) else causes.IMPORTING


def basis(state: State) -> tuple[object, ...]:
    """What the causes of all seats depend on: while it is the same, only members that change can have another."""
    world = state.world
    return (
        state.stage,
        state.phase == "suspended",
        state.placement.suspended,
        None if world is None else world.generation,
        world is not None and world.restoring is not None and bool(world.restoring.orders),
        state.target,
        state.spec.first_index,
    )
