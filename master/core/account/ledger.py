"""Keeps the time account: at each moment every desired rank index has exactly one cause.

A seat without a process has the cause that `account.seats` finds. A process is known by what its first rank reports
(`Spent`): how long each activity other than steps has taken. What it does between its steps is final when it has ended,
and the rest when a step ends. Until then it is open: a fault can still show that the process hung, or that another
one had been lost and this was not noticed yet. So no cause ever loses a second that it had.

The sum over all causes is the wall time of the seats by construction: each of them is settled up to one moment.
"""

from __future__ import annotations

from operator import attrgetter

from outrider.master.core.account import causes, seats
from outrider.master.core.history import tracks
from outrider.master.core.state.account import Outage, Process, Seat
from outrider.master.core.state.generation import World
from outrider.master.core.state.history import Track
from outrider.master.core.state.job import ENDED, RUNNING, STOPPING, State
from outrider.master.core.state.member import Member
from outrider.wire.ids import Generation, RankIndex
from outrider.wire.messages.report import Report, Spent

HANG_KINDS = ("HangDetected",)
ACTIVITIES_OF = attrgetter(*causes.ACTIVITIES)
Booked = list[tuple[str, float]]
"""Seconds by cause, in the order in which they passed."""
SILENT_KINDS = ("MemberSilent", "MemberLost", "MemberIsolated")
AFTER_A_FAULT = (causes.DETECTING, causes.STOPPING, causes.HANG, causes.WAITING)
OPERATIONS = {causes.CHECKPOINT_STALL: "save", causes.LOADING: "load"}
"""The operations on checkpoints that metrics show, by their cause."""


# -- at the end of a step -----------------------------------------------------------------------------------------
def look(state: State) -> None:
    """Follows what has changed in this step: O(changed members), or O(members) when the whole job changes."""
    account = state.account
    if account.closed:
        return
    basis = seats.basis(state)
    if basis != account.seen:
        account.seen = basis
        _all(state)
    elif account.changed:
        for index in account.changed:
            seat = account.seats.get(index)
            if seat is not None:
                _follow(state, index, seat)
    account.changed.clear()
    if state.stage == ENDED:
        _close(state)


def _all(state: State) -> None:
    account = state.account
    _count_wall(state)
    for removed in [index for index in account.seats if index not in state.indexes]:
        seat = account.seats.pop(removed)
        _end_process(state, seat)
        _settle(state, seat, seat.cause, state.now)
    for index in map(RankIndex, state.indexes):
        if index not in account.seats:
            track = state.history.tracks.setdefault(index, Track())
            account.seats[index] = Seat(seats.cause(state, index), state.now, track=track)
        _follow(state, index, account.seats[index])


def _follow(state: State, index: RankIndex, seat: Seat) -> None:
    process, world = seat.process, state.world
    if process is None and world is not None and state.stage == STOPPING and seat.cause == causes.FIRST_STEP:
        process = seat.process = Process(world.generation, seat.since, {}, is_assumed=True)
    if process is not None:
        holder = state.placement.holders.get(index)
        member = None if holder is None else state.members.get(holder)
        is_done = member is not None and (member.finished or (world is not None and member.id in world.done))
        is_its = world is not None and world.generation == process.generation and not is_done
        if is_its and state.stage == RUNNING and world is not None and member is not None and member.id in world.places:
            return
        if is_its and state.stage == STOPPING and (member is None or member.stopped < process.generation):
            _begin_end(state, seat, world)  # the end waits for the last words of this rank, or of the others
            return
        _begin_end(state, seat, world)
        _end_process(state, seat, is_done=is_done)
    cause = seats.cause(state, index)
    if cause != seat.cause:
        _settle(state, seat, seat.cause, state.now)
        seat.cause = cause


def _close(state: State) -> None:
    _count_wall(state)
    for seat in state.account.seats.values():
        _end_process(state, seat)
        _settle(state, seat, seat.cause, state.now)
    state.account.closed = True


def _count_wall(state: State) -> None:
    account = state.account
    account.wall += len(account.seats) * (state.now - account.wall_at)
    account.wall_at = state.now


def _add(state: State, cause: str, seconds: float) -> None:
    if seconds > 0:
        state.account.seconds[cause] = state.account.seconds.get(cause, 0.0) + seconds


def _settle(state: State, seat: Seat, cause: str, until: float) -> None:
    """Books everything up to a moment under one cause."""
    _add(state, cause, until - seat.since)
    tracks.add(seat.track, cause, seat.since, until)
    seat.since = max(seat.since, until)


# -- what processes report ----------------------------------------------------------------------------------------
def reported(state: State, member: Member, message: Report) -> None:
    first = message.ranks[0] if message.ranks else None
    if message.spent is None or first is None:
        seat = None if member.rank_index is None else state.account.seats.get(member.rank_index)
        if seat is not None and seat.process is None and member.rank_index is not None:
            state.account.changed.add(member.rank_index)
        return
    _note(state, member, message.generation, message.spent, (first.step, first.base))


def noted(
    state: State, member: Member, generation: Generation, spent: Spent | None, step: int, *, is_last: bool = False
) -> None:
    """Books what a rank had spent its time on when it made its first new step, or ended at this absolute step."""
    if spent is not None:
        _note(state, member, generation, spent, (step, -1), is_last=is_last)


def _note(
    state: State, member: Member, generation: Generation, spent: Spent, made: tuple[int, int], *, is_last: bool = False
) -> None:
    world = state.world
    seat = None if member.rank_index is None else state.account.seats.get(member.rank_index)
    if seat is None or world is None or generation != world.generation or member.id not in world.places:
        return
    if state.stage not in (RUNNING, STOPPING) and not state.is_over:
        return
    process = seat.process
    if process is None or process.is_assumed:
        if member.finished or member.id in world.done or member.stopped >= generation:
            return
        process = _begin_process(state, seat, world, spent)
    elif process.generation != generation:
        return
    step = _absolute(world, process, *made)
    until = state.now if seat.ends_at is None else _extended(seat, state.now - spent.step_age)
    later = state.now - until
    booked: Booked = []
    gap = _book_activities(booked, process, spent, until - seat.since)
    since_last = max(0.0, spent.step_age - later)
    is_open = min(since_last, gap) if spent.since_first_step >= 0 else gap
    seconds = gap - is_open
    if spent.since_first_step >= 0 and process.first_step_at is None and seconds > 0:
        seconds = _book_first_step(state, booked, process, spent, seconds, step)
    if process.first_step_at is not None:
        _book_steps(state, booked, world, process, seconds, step)
    for cause, seconds in booked:
        _settle(state, seat, cause, seat.since + seconds)
        if cause in OPERATIONS:
            state.counters.note_checkpoint(OPERATIONS[cause], seconds)
    seat.since = until - is_open
    process.doing, process.doing_since = spent.doing, state.now - spent.doing_for
    seat.cause = _seems(process)
    if is_last:
        seat.told_of = generation
    state.account.reached = max(state.account.reached, (process.generation, process.step))


def _extended(seat: Seat, moved_at: float) -> float:
    """The end of a process that is being stopped: not before its own last step, which the fault has not reached."""
    assert seat.ends_at is not None
    seat.ends_at = max(seat.since, seat.ends_at, min(moved_at, seat.stop_at))
    return seat.ends_at


def _begin_process(state: State, seat: Seat, world: World, spent: Spent) -> Process:
    born_at = min(state.now, max(seat.since, state.now - spent.age))
    if seat.process is None:
        _settle(state, seat, seat.cause, born_at)
    resume = world.resume
    process = seat.process = Process(world.generation, born_at, {}, step=max(resume.base, 0))
    if world.generation.term < state.term:  # adopted: what it did before this master is not this master's to book
        process.counted = {name: getattr(spent, name) for name in causes.ACTIVITIES}
        process.first_step_at = None if spent.since_first_step < 0 else born_at
        process.step = state.progress.high_step
    return process


def _absolute(world: World, process: Process, step: int, base: int) -> int:
    """The step as the job counts: a rank that got its state from another one counts from 0."""
    if base >= 0:
        step += max(world.resume.base, base) - base
    return max(process.step, step + world.resume.counts_from)


def _book_activities(booked: Booked, process: Process, spent: Spent, gap: float) -> float:
    """Books the activities that have ended; returns what is left of the gap."""
    totals = ACTIVITIES_OF(spent)
    if totals == process.totals:
        return max(0.0, gap)
    process.totals = totals
    for total, (name, cause) in zip(totals, causes.ACTIVITIES.items(), strict=True):
        before = process.counted.get(name, 0.0)
        more = min(max(0.0, total - before), max(0.0, gap))
        if more:
            booked.append((cause, more))
            process.counted[name] = total
            gap -= more
    return max(0.0, gap)


def _book_first_step(state: State, booked: Booked, process: Process, spent: Spent, seconds: float, step: int) -> float:
    """Books all until the end of the first step; returns the seconds of steps after it."""
    process.first_step_at = state.now - spent.since_first_step
    stalls = sum(process.counted.get(name, 0.0) for name in ("checkpoint", "data", "evaluation"))
    after = max(0.0, spent.since_first_step - spent.step_age - stalls)
    booked.append((causes.FIRST_STEP, max(0.0, seconds - after)))
    process.step = min(step, process.step + 1)
    return min(seconds, after)


def _book_steps(state: State, booked: Booked, world: World, process: Process, seconds: float, step: int) -> None:
    """Books the time of steps that have ended: of repeated ones, of new ones, and what a slow member adds to them."""
    if seconds <= 0:
        return
    made, repeated = step - process.step, 0
    if world.resume.verdict != "unknown":
        repeated = min(step, world.resume.high) - process.step
    share = min(1.0, max(0, repeated) / made) if made > 0 else float(step < world.resume.high)
    process.step = step
    if share:
        booked.append((causes.REPEATED_STEPS, seconds * share))
    new = seconds * (1 - share)
    slow = min(1.0, world.comparison.cost) * new
    if slow > 0:
        booked.append((causes.SLOW_MEMBER, slow))
    booked.append((causes.PRODUCTIVE, new - slow))


def _seems(process: Process) -> str:
    """The cause that an open second will have if nothing goes wrong."""
    if process.doing:
        return causes.ACTIVITIES.get(process.doing, causes.PRODUCTIVE)
    return causes.FIRST_STEP if process.first_step_at is None else causes.PRODUCTIVE


# -- the end of a process -----------------------------------------------------------------------------------------
def _begin_end(state: State, seat: Seat, world: World | None) -> None:
    """Notes that the process is being stopped, or has ended; its last words may still come."""
    if seat.ends_at is not None:
        return
    outage = state.account.outage
    is_fault = outage is not None and world is not None and state.stage == STOPPING
    seat.stop_at = state.now
    seat.ends_at = min(state.now, outage.began_at) if is_fault and outage is not None else state.now
    incident = state.faults.incident
    seat.hung = is_fault and incident is not None and incident.fault.kind in HANG_KINDS
    seat.cause = causes.STOPPING


def _end_process(state: State, seat: Seat, *, is_done: bool = False) -> None:
    """Books the open seconds of a process that has ended, each under what it turned out to be."""
    process = seat.process
    if process is None:
        return
    if seat.ends_at is not None and not is_done:
        _follow_the_others(state, seat, process)
    ends_at = state.now if seat.ends_at is None else seat.ends_at
    stop_at = state.now if seat.ends_at is None else max(seat.stop_at, ends_at)
    if process.doing:
        _settle(state, seat, _cut_short(process, is_done), min(process.doing_since, ends_at))
        _settle(state, seat, causes.ACTIVITIES.get(process.doing, causes.UNKNOWN), ends_at)
    _settle(state, seat, _cut_short(process, is_done), ends_at)
    _settle(state, seat, causes.HANG if seat.hung else causes.DETECTING, stop_at)
    seat.process, seat.ends_at, seat.hung, seat.cause = None, None, False, causes.STOPPING


def _follow_the_others(state: State, seat: Seat, process: Process) -> None:
    """Books the last second of a process that said no more: ranks step together, so it did what another one did.

    What it was doing then has ended if any has made a later step since.
    """
    world, progress = state.world or state.left, state.progress
    is_its = world is not None and world.generation == process.generation
    if seat.told_of == process.generation or not is_its or (process.doing and state.account.reached[1] <= process.step):
        return
    if progress.high_step_at is not None and progress.high_step_generation == process.generation:
        _extended(seat, progress.high_step_at)
    heard = (each for each in state.account.seats.values() if each.told_of == process.generation)
    known = max(heard, key=lambda each: each.track.end, default=None)
    if known is None:
        return
    process.doing = ""
    assert seat.ends_at is not None
    for cause, end in tracks.within(known.track, seat.since, seat.ends_at):
        if cause in AFTER_A_FAULT:
            break
        _settle(state, seat, cause, end)
        if cause not in (causes.FIRST_STEP, causes.IMPORTING, causes.RENDEZVOUS, causes.LOADING):
            process.first_step_at = process.first_step_at or end


def _cut_short(process: Process, is_done: bool) -> str:
    if is_done:
        return causes.STOPPING
    return causes.FIRST_STEP if process.first_step_at is None else causes.REPEATED_STEPS


# -- an outage ----------------------------------------------------------------------------------------------------
def stops(state: State) -> None:
    """Notes when the cause of this stop began: an exit, the last sign of a silent member, a hang, or just now."""
    incident, now = state.faults.incident, state.now
    began = now
    if incident is not None and incident.generation == state.generation:
        began = min([now, *(failure.at for failure in incident.failures)])
        member = None if incident.fault.member is None else state.members.get(incident.fault.member)
        if incident.fault.kind in SILENT_KINDS and member is not None and member.heard_at:
            began = min(began, member.heard_at)
        watch = state.hangs.watch
        if incident.fault.kind in HANG_KINDS and watch is not None:
            began = min(began, watch.since)
    state.account.outage = Outage(began, now)


def left(state: State) -> None:
    """Notes that nothing of the old generation runs any more."""
    if state.account.outage is not None:
        state.account.outage.left_at = state.now
