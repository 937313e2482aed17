"""Autoscaling: measures a job while its generation runs, and changes its size as `scaling.size_policy` decides.

A change is made like `outrider scale`: it waits for the next finished checkpoint, and no rank is stopped earlier for a
trial. If pods find no room within a minute, the job returns to the size that runs, and room is requested again later.
If a user scales the job, autoscaling pauses until the policy is edited or resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from statistics import median

from outrider.master.core.actions import WriteReplicas
from outrider.master.core.generation import observe_only, readiness
from outrider.master.core.scaling import schedule as scaling_schedule
from outrider.master.core.scaling import size_policy, throughput
from outrider.master.core.scaling.curve import PENDING, STOP, policy_of
from outrider.master.core.scaling.size_policy import Limits, Policy
from outrider.master.core.spec import EFFICIENCY, SCHEDULE, JobSpec
from outrider.master.core.state import scaling as state_scaling
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.scaling import Meter, Rate, Scaling
from outrider.master.core.text import counted, moment, seconds
from outrider.wire.messages.report import RankProgress, Report

ROOM_AGAIN, ROOM_SLOWEST = 300.0, 3600.0
"""Seconds until room is requested again: after the first lack of room, and at most."""
WRITE_AGAIN = 10.0
"""Seconds until a failed write of the size is repeated."""
INIT = "init"
UNMEASURED = (
    "The job keeps its size: its speed is unknown, because no step of rank 0 was seen, neither by the hooks nor in its "
    "output (metrics.logPattern)."
)


def is_on(state: State) -> bool:
    return bool(state.spec.scaling) and not state.scaling.by_hand


def _may_change(state: State) -> bool:
    return is_on(state) and not state.ends and not state.placement.suspended and bool(limits_of(state).sizes())


def limits_of(state: State) -> Limits:
    spec, room = state.spec, state.scaling.room
    most = spec.max_members if room is None else min(room, spec.max_members)
    return Limits(spec.min_members, max(most, spec.min_members), max(spec.node_unit, 1))


# -- measuring ------------------------------------------------------------------------------------------------------
def note_report(state: State, member: Member, report: Report) -> None:
    """Measures the job by a report of the member with rank 0."""
    world = _measured_world(state, member)
    if world is None:
        return
    if state.scaling.room is not None and state.ready:
        _find_room(state, len(world.places))
        return
    row = _stepping(report, world)
    if row is not None:
        _decide(state, throughput.note(_meter(state, world), row, world.world_size, state.now))


def note_line(state: State, member: Member, values: Mapping[str, float], at: float) -> None:
    """Measures the job by a line of rank 0's log, if the hooks see no steps."""
    if "noise" in values:
        state.scaling.noise.append(values["noise"])
    world = _measured_world(state, member)
    if world is None or (member.report is not None and _stepping(member.report, world) is not None):
        return
    _decide(state, throughput.note_line(_meter(state, world, of_lines=True), values, world.world_size, at))


def _measured_world(state: State, member: Member) -> World | None:
    """The generation, if it is measured now, by this member."""
    world = state.world
    if not _may_change(state) or world is None or member.id != world.order[0]:
        return None
    if state.stage == RUNNING and not state.resize and len(world.places) == state.target:
        return world
    state.scaling.meter = None
    return None


def _stepping(report: Report, world: World) -> RankProgress | None:
    """The progress of rank 0, if the hooks have seen it make a step in this generation."""
    rank = next((row for row in report.ranks if row.local_rank == 0), None)
    is_seen = rank is not None and rank.phase != INIT and report.generation == world.generation
    return rank if is_seen else None


def _meter(state: State, world: World, *, of_lines: bool = False) -> Meter:
    meter = state.scaling.meter
    if meter is None or (meter.generation, meter.of_lines) != (world.generation, of_lines):
        meter = state.scaling.meter = Meter(world.generation, of_lines)
    return meter


def still_unmeasured(state: State) -> None:
    """Reports that a generation has run for minutes and its speed is still unknown."""
    if (
        not is_on(state)
        or state.spec.scaling == SCHEDULE
        or state.scaling.search.known
        or state.scaling.message == UNMEASURED
    ):
        return
    _note(state, state_scaling.START, UNMEASURED)
    state.announce("ScalingMetricMissing", UNMEASURED, warning=True)
    state.mark_status()


def _decide(state: State, rate: Rate | None) -> None:
    if rate is None or not isfinite(rate.samples) or rate.samples <= 0:
        return
    scaling = state.scaling
    if scaling.meter is not None and scaling.meter.batch and state.world is not None:
        scaling.batch = scaling.meter.batch * state.world.world_size / len(state.world.places)
    if scaling.began is None:
        scaling.began = state.now
    size_policy.measured(scaling.search, state.target, rate)
    if state.spec.scaling == SCHEDULE:
        return
    policy, weighed = _policy(state)
    decision = size_policy.decide(scaling.search, state.target, limits_of(state), policy, state.now)
    if decision.size != state.target:
        _change(state, decision.size, decision.condition, decision.reason + weighed)
    elif scaling.room is None:
        _note(state, decision.condition, decision.reason + weighed)


def _policy(state: State) -> tuple[Policy, str]:
    """The policy, with the gradient noise if it is known, and a sentence about it for the reason."""
    scaling, policy = state.scaling, policy_of(state.spec)
    if state.spec.scaling != EFFICIENCY:
        return policy, ""
    if state.spec.keep_global_batch:
        return policy, " The global batch is the same at any size, so throughput alone counts."
    if not scaling.noise or not scaling.batch:
        lacking = "The number of samples in a batch is" if scaling.noise else "The gradient noise is"
        return policy, f" {lacking} unknown, so throughput alone counts."
    noise = median(scaling.noise)
    text = f" Samples are weighted: the gradient noise is {noise:.4g} samples, a member's batch {scaling.batch:.4g}."
    return policy._replace(noise=noise, batch=scaling.batch), text


def _note(state: State, condition: str, message: str) -> None:
    """Sets the condition and the message that the status has about scaling."""
    scaling = state.scaling
    if condition != scaling.condition:
        state.mark_status()
    scaling.condition, scaling.message = condition, message


def _change(state: State, size: int, condition: str, reason: str) -> None:
    if observe_only.would(state, f"resize to {size}", reason):
        return
    scaling = state.scaling
    scaling.last, state.target, scaling.meter = state.target, size, None
    scaling.condition, scaling.message = condition, reason
    scaling.trail.append((state.now, size, reason))
    state.announce("ScaleDecided", reason)
    _write(state, reason)
    state.deadlines.cancel(("room", ""))
    readiness.note_staffing(state)
    readiness.note_resize(state)
    state.mark_status()


def _write(state: State, reason: str) -> None:
    state.scaling.written.add(state.target)
    state.act(WriteReplicas(state.target, state.generation, reason))


def not_written(state: State) -> None:
    """Schedules another write of the size; the job already has it, and the ElasticJob shows the old one until then."""
    state.deadlines.set(("write", ""), state.now + WRITE_AGAIN)


def write_again(state: State) -> None:
    if is_on(state) and not state.is_over and state.target in state.scaling.written:
        _write(state, "The size that autoscaling has decided is written to the ElasticJob again.")


# -- room -----------------------------------------------------------------------------------------------------------
def note_room(state: State, member: Member) -> None:
    """Starts to wait, at most `scale_room_patience`, for a pod that is pending for lack of room."""
    world = state.world
    if not is_on(state) or state.scaling.room is not None or world is None or len(world.places) >= state.target:
        return
    if member.unschedulable and state.deadlines.at(("room", "")) is None:
        state.deadlines.set(("room", ""), state.now + state.spec.scale_room_patience)
        patience = seconds(state.spec.scale_room_patience)
        _note(state, PENDING, f"{member.id} cannot be scheduled; the job waits {patience} for room.")


def room_due(state: State) -> None:
    """Gives up a size without room, or requests room again."""
    world, scaling = state.world, state.scaling
    if not _may_change(state):
        return
    if scaling.room is not None:
        scaling.room = scaling.room_at = scaling.search.settled = None
        follow_schedule(state)
        return
    lacking = sorted(m.id for m in state.members.values() if m.unschedulable)
    if world is None or not lacking or len(world.places) >= state.target:
        return
    _go_back(state, limits_of(state).within(len(world.places)), ", ".join(lacking))


def _go_back(state: State, size: int, lacking: str) -> None:
    scaling = state.scaling
    again = min(ROOM_AGAIN * 2**scaling.no_room, ROOM_SLOWEST)
    desired, patience = counted(state.target, "member"), seconds(state.spec.scale_room_patience)
    reason = (
        f"There was no room for {desired} within {patience} ({lacking}): back to {size}; more are requested again in "
        f"{again:.0f} s."
    )
    _change(state, size, STOP, reason)
    scaling.room, scaling.room_at, scaling.no_room = size, state.now + again, scaling.no_room + 1
    scaling.search.settled = state.now  # the job was to grow, so no smaller size is better
    state.deadlines.set(("room", ""), scaling.room_at)


def _find_room(state: State, running: int) -> None:
    """Scales up, because pods that had no room (as the replacement of a suspected member) are ready by now."""
    scaling, ready = state.scaling, sorted(state.ready)
    scaling.room = scaling.room_at = scaling.search.settled = None
    if state.spec.scaling == SCHEDULE:
        follow_schedule(state)
        return
    size = limits_of(state).within(running + len(ready))
    if size != state.target:
        _change(state, size, size_policy.CONTINUE, f"There is room again: {', '.join(ready)} can train too.")


# -- by schedule ------------------------------------------------------------------------------------------------------
def follow_schedule(state: State) -> None:
    """Sets the size that the schedule has now.

    Called at each entry of the schedule, and after anything that may have prevented it: a suspension, a lack of room,
    an edit.
    """
    spec, scaling = state.spec, state.scaling
    if spec.scaling != SCHEDULE or not is_on(state) or state.is_over:
        return
    due = scaling_schedule.due(spec.schedule, spec.time_zone, state.now + state.unix_offset)
    scaling.due_at = None if due.next_at is None else due.next_at - state.unix_offset
    if scaling.due_at is not None:
        state.deadlines.set(("schedule", ""), scaling.due_at)
    if due.members is None or scaling.room is not None or not _may_change(state):
        return
    size, reason = limits_of(state).within(due.members), _by_schedule(due)
    if size != state.target:
        _change(state, size, size_policy.CONTINUE, reason)
    else:
        _note(state, size_policy.CONTINUE, reason)


def look_at_schedule(state: State) -> None:
    """Called by a new master once it knows its members."""
    if state.spec.scaling == SCHEDULE:
        state.deadlines.set(("schedule", ""), state.now)


def _by_schedule(due: scaling_schedule.Due) -> str:
    text = f"The schedule sets {counted(due.members or 0, 'member')} ({due.cron})"
    return f"{text}, and {due.next_members} from {moment(due.next_at)} on." if due.next_at is not None else f"{text}."


def first(state: State) -> None:
    """Called once, when the job begins."""
    state.scaling.seen = state.spec.replicas
    follow_schedule(state)


# -- the next master --------------------------------------------------------------------------------------------------
def begin(state: State) -> None:
    """Restores the deadlines from the saved status."""
    scaling = state.scaling
    if scaling.room_at is not None:
        state.deadlines.set(("room", ""), scaling.room_at)
    if state.target in scaling.written:
        state.deadlines.set(("write", ""), state.now)


# -- by the user ----------------------------------------------------------------------------------------------------
def edited(state: State, before: JobSpec) -> None:
    """Starts again if the policy was edited, and keeps the size within edited limits."""
    spec = state.spec
    if _requested(before) != _requested(spec):
        resume(state)
    _keep_within(state)


def _requested(spec: JobSpec) -> tuple[object, ...]:
    return (spec.scaling, policy_of(spec), spec.schedule, spec.time_zone)


def _keep_within(state: State) -> None:
    """Changes a size that the edited limits no longer allow."""
    allowed = limits_of(state).sizes()
    if not is_on(state) or state.is_over or not allowed or state.target in allowed:
        return
    size, spec = limits_of(state).within(state.target), state.spec
    now = f"{spec.min_members} to {counted(spec.max_members, 'member')} now"
    state.scaling.search.settled = None
    _change(state, size, size_policy.CONTINUE, f"The limits are {now}: the size changes from {state.target} to {size}.")


def is_own(state: State, replicas: int) -> bool:
    """Whether the size in the ElasticJob is not a user's request.

    It is not if the master wrote it, the ElasticJob had it before, or edited limits leave no other.
    """
    scaling = state.scaling
    allowed = limits_of(state)
    is_forced = (
        bool(allowed.sizes()) and state.target not in allowed.sizes() and replicas == allowed.within(state.target)
    )
    own = is_on(state) and (replicas == scaling.seen or replicas in scaling.written or is_forced)
    scaling.seen = replicas
    if replicas == state.target:
        scaling.written.clear()
    return own


def scaled_by_hand(state: State, size: int) -> None:
    """Pauses autoscaling, because a user has set the size."""
    if size != state.target:
        state.scaling.last = state.target
    if not is_on(state):
        return
    text = (
        f"A user scaled the job to {counted(size, 'member')}: autoscaling pauses until `outrider scale JOB "
        "auto` or an edit of spec.scaling."
    )
    state.scaling.by_hand, state.scaling.meter = text, None
    _note(state, STOP, text)
    state.announce("ScalingPaused", text)
    state.deadlines.cancel(("room", ""))


def resume(state: State) -> None:
    """Starts autoscaling again and drops all earlier measurements."""
    before = state.scaling
    state.scaling = Scaling(last=before.last, seen=before.seen, trail=before.trail)
    state.deadlines.cancel(("room", ""))
    state.mark_status()
    if state.spec.scaling:
        how = "follows its schedule" if state.spec.scaling == SCHEDULE else "finds its own size"
        state.announce("ScalingResumed", f"The job {how}, starting from {counted(state.target, 'member')}.")
    follow_schedule(state)
