"""Watches the progress of the running generation: sets the timers of looks, and notes steps and pauses.

What follows from missing progress is decided in `hangs.detector`.
"""

from __future__ import annotations

from outrider.master.core.hangs import limits as hangs_limits
from outrider.master.core.state.generation import World
from outrider.master.core.state.hangs import Watch
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import (
    GenerationAdopted,
    GenerationStarted,
    RankDone,
    SpecEdited,
    StepMade,
    WorkersStarted,
)
from outrider.wire.messages.report import Report

FIRST_REPORTS = 3.0
"""Seconds until a new master knows the phase of each rank, and so the limit that applies."""
LOOK = 7.0
"""Seconds without progress before the first look at the ranks."""


def begin(state: State, _started: GenerationStarted) -> None:
    """A generation is started."""
    world = state.world
    assert world is not None
    state.hangs.watch = hangs_limits.begin(world.generation, state.now)
    look_in(state, state.hangs.watch)
    look_at_ranks_in(state, state.hangs.watch, LOOK)


def take_over(state: State, adopted: GenerationAdopted) -> None:
    """A generation that an earlier master started continues."""
    state.hangs.watch = hangs_limits.taken_over(adopted.progress, state.generation, state.now, state.unix_offset)
    look_in(state, state.hangs.watch, FIRST_REPORTS)
    look_at_ranks_in(state, state.hangs.watch, LOOK)


def edited(state: State, _edited: SpecEdited) -> None:
    """The limits may have changed."""
    if state.hangs.watch is not None:
        look_in(state, state.hangs.watch)


def look_in(state: State, watch: Watch, after: float | None = None) -> None:
    """Sets the next check for a hang, by default at the earliest time at which the generation could hang."""
    at = hangs_limits.look_again(watch, state.hangs.pace, state.spec, state.now) if after is None else state.now + after
    state.deadlines.set(("hang", str(watch.generation.number)), max(at, state.now))


def look_at_ranks_in(state: State, watch: Watch, seconds: float) -> None:
    state.deadlines.set(("look", str(watch.generation.number)), state.now + seconds)


def watched(state: State, number: str = "") -> tuple[Watch, World] | None:
    """The running generation, if hang detection is on; `number`: only if it is this generation."""
    watch, world = state.hangs.watch, state.world
    if watch is None or world is None or state.stage != RUNNING or world.generation != watch.generation:
        return None
    is_meant = not number or str(watch.generation.number) == number
    return (watch, world) if state.spec.hang_detection and is_meant else None


def own_limit(state: State, watch: Watch) -> float | None:
    """The limit that the user has set for the phase that counts, if any."""
    return hangs_limits.user_limit(state.spec, hangs_limits.ruling(watch, state.hangs.pace, state.spec, state.now)[0])


def note_started(state: State, _started: WorkersStarted) -> None:
    """The processes of another member have started; the other ranks had to wait for them, so the clock restarts."""
    if state.hangs.watch is not None:
        state.hangs.watch.since = state.now


def note_report(state: State, member: Member, report: Report) -> None:
    """Notes the progress in a report. O(the member's own ranks)."""
    watch, world = state.hangs.watch, state.world
    if watch is None or world is None or report.generation != watch.generation or member.id not in world.places:
        return
    rows = [row for row in report.ranks if 0 <= row.local_rank < world.places[member.id].nproc]
    if hangs_limits.note(watch, state.hangs.pace, member.id, rows, state.now) and watch.suspicion is not None:
        drop(state, watch, "its ranks make progress again")


def note_stepped(state: State, made: StepMade) -> None:
    """Notes a new highest step, which a sidecar sends at once, before the next report."""
    watch, step = state.hangs.watch, made.step
    if watch is None or watch.generation != state.generation or step <= watch.step:
        return
    watch.step, watch.since, watch.stepped_at, watch.lenient = step, state.now, state.now, False
    if watch.suspicion is not None:
        drop(state, watch, "its ranks make progress again")


def drop(state: State, watch: Watch, why: str) -> None:
    """Clears the suspicion: the generation does not hang."""
    suspicion, watch.suspicion = watch.suspicion, None
    look_in(state, watch)
    if suspicion is not None and suspicion.is_reported:
        state.announce("HangCleared", f"Generation {watch.generation} does not count as hung: {why}.")


def is_counted(state: State) -> bool:
    """Whether a rank of the job has shown a step, in any generation."""
    return state.progress.first_step is not None


def note_stall(state: State, lost: float) -> None:
    if state.hangs.watch is not None:
        hangs_limits.note_stall(state.hangs.watch, lost, state.now)


def note_no_turn(state: State) -> None:
    """No rank could make a step until now, for a known reason, so the clock restarts."""
    if state.hangs.watch is not None:
        state.hangs.watch.since = state.hangs.watch.stepped_at = state.now


def note_end(state: State, _done: RankDone) -> None:
    if state.hangs.watch is not None:
        state.hangs.watch.ending = True
