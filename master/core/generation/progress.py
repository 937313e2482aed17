"""Steps, checkpoints and lost time.

The highest absolute step ever made, and the moment it was made, are what lost time is measured from: a fault costs the
seconds from that moment to the first step beyond it, repeated steps included. Moments come as ages, so the clocks of
the members do not matter.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.generation import readiness
from outrider.master.core.generation import resume as generation_resume
from outrider.master.core.state.generation import OVER, UNKNOWN, Fault, World
from outrider.master.core.state.job import RUNNING, STOPPING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import CheckpointFinished, RankSaves, StepMade
from outrider.master.core.text import counted, exactly
from outrider.wire.ids import Generation
from outrider.wire.messages.checkpoints import Saved
from outrider.wire.messages.generation import Stepped, WorkerExit
from outrider.wire.messages.report import Report

SAVES_KEPT = 64
PRINTS_KEPT = 256


def note_step(state: State, generation: Generation, step: int, at: float) -> None:
    """A rank had made this many steps at this moment, as it counts them."""
    if step <= 0:
        return
    if state.world is not None and generation == state.world.generation:
        step += state.world.resume.counts_from
    if step < state.progress.high_step:
        return
    if state.progress.first_step is None:
        state.progress.first_step = step
    if step > state.progress.high_step:
        state.progress.high_step, state.progress.high_step_at, state.progress.high_step_generation = (
            step,
            at,
            generation,
        )
    elif generation == state.progress.high_step_generation:
        state.progress.high_step_at = max(state.progress.high_step_at or at, at)


def note_report(state: State, member: Member, report: Report) -> None:
    """O(the member's own ranks): what a report says about steps."""
    world = state.world
    member.report = report
    if world is None or report.generation != world.generation or member.id not in world.places:
        return
    generation_resume.look(state, member, report.ranks)
    if world.resume.verdict:
        settle(state, world)
    for rank in report.ranks:
        if rank.phase != "init":
            _trains(state, world)
            note_step(state, report.generation, rank.step, state.now - _possible(state, rank.step_age))
    if not report.ranks:
        note_step(state, report.generation, report.step, state.now)
    if 0 < report.step_seconds <= state.now - state.began_at:
        state.progress.step_seconds.append(report.step_seconds)


def _possible(state: State, age: float) -> float:
    """The age that a rank claims, where the job is that old; else it is no age at all."""
    return age if 0 <= age <= state.now - state.began_at else 0.0


def made_no_step(state: State, exit: WorkerExit) -> bool:
    """It ended where it began: at no step, or at exactly the step of a checkpoint that it had loaded."""
    return exit.step == 0 or exit.step in state.progress.saves.values()


def stepped(state: State, member: Member, message: Stepped) -> None:
    """Training is beyond where it ever was: the lost time is over."""
    world = state.world
    if world is None or message.generation != world.generation or state.stage not in (RUNNING, STOPPING):
        return
    at = state.now - message.age
    _trains(state, world)
    state.occur(StepMade(message.step))
    world.resume.reached = max(world.resume.reached, message.step)
    world.resume.base = max(world.resume.base, message.base)
    generation_resume.decide(state, world)
    if not world.recovered and world.resume.passed is None:
        world.resume.passed = (at, message.step)
    if world.resume.verdict:
        settle(state, world)
    note_step(state, message.generation, message.step, at)


def settle(state: State, world: World) -> None:
    """Training is beyond where it was: what is said of that depends on what this generation went on from, which its
    reports say within a second. Nothing waits for it once the world ends."""
    if world.resume.passed is None or world.recovered:
        return
    world.recovered = True
    _recover(state, world, *world.resume.passed)


def read_in_log(state: State, world: World, step: int, at: float) -> None:
    """A line of a rank's output says so. It counts only where the hooks see no step."""
    if world.made_step:
        return
    if step > state.progress.high_step and not world.recovered:
        world.recovered = True
        _recover(state, world, at, step)
    note_step(state, world.generation, step, at)


def _trains(state: State, world: World) -> None:
    """From now on its script can be asked to save by a signal: another size need not wait for its next checkpoint."""
    if not world.made_step and state.spec.save_signal:
        readiness.note_resize(state)
    world.made_step = True


def _recover(state: State, world: World, at: float, step: int) -> None:
    """Shares the lost seconds out: each open fault has those from its own moment (the first: from the last step) to the
    next fault's, the last one those to the new step. Where that may be one of before, an error may be too."""
    verdict = world.resume.verdict
    state.faults.note_step(is_new=verdict != UNKNOWN)
    if state.phase == "restarting":
        state.phase = "running"
    open_faults = [fault for fault in state.faults.noted if fault.seconds_lost is None]
    begin = generation_resume.lost_from(state, world)
    if begin is None:
        return
    total = max(0.0, at - begin)
    state.progress.seconds_lost += total
    for fault, following in zip(open_faults, [*open_faults[1:], None], strict=True):
        until = at if following is None else min(max(following.at, begin), at)
        fault.seconds_lost = max(0.0, until - begin)
        begin = until
    if verdict == UNKNOWN:
        state.message = "training goes on, from which step is not known"  # `generation.resume` has told it
    elif verdict == OVER:
        _announce_caught_up(state, world, open_faults[-1], total, step)
    else:
        _announce_recovery(state, open_faults, total, step, had_trained=world.lost_from is not None)
    state.mark_status()


def note_cost(state: State, fault: Fault, at: float) -> None:
    """It is over, and all the time since it happened was lost."""
    fault.seconds_lost = max(0.0, at - fault.at)
    state.progress.seconds_lost += fault.seconds_lost


def _announce_recovery(state: State, faults: list[Fault], total: float, step: int, *, had_trained: bool) -> None:
    cause = faults[-1].kind if len(faults) == 1 else f"{len(faults)} faults"
    state.message = f"training goes on at step {step}" if had_trained else "training has begun"
    state.announce(
        "Recovered",
        f"Training is past step {step - 1}, where it was before {cause}: {exactly(total)} were lost."
        if had_trained
        else f"Training begins at step {step}, {exactly(total)} after {cause}: no step had been made before it.",
        faults[-1].member,
        detail=(("seconds_lost", f"{total:.3f}"), ("step", str(step))),
    )


def _announce_caught_up(state: State, world: World, fault: Fault, total: float, step: int) -> None:
    state.message = f"training goes on at step {step}: it had started over"
    state.announce(
        "CaughtUp",
        f"Training is past step {step - 1} again, where it was before {fault.kind}: "
        f"{counted(world.resume.high, 'step')} were repeated and {exactly(total)} lost.",
        fault.member,
        detail=(("seconds_lost", f"{total:.3f}"), ("step", str(step)), ("repeated", str(world.resume.high))),
    )


def saved(state: State, member: Member, message: Saved) -> None:
    """A checkpoint is finished: the moment at which a change of the world costs no work."""
    world = state.world
    counts_from = 0
    if world is not None and message.generation == world.generation:
        counts_from = world.resume.counts_from
        message = replace(message, step=message.step + counts_from)
    if message.again:
        if not message.is_first and state.progress.saves.get(message.path, -1) < message.step:
            _note_save(state, message)
        _note_prints(state, message)
        return
    if world is None or message.generation != world.generation:
        return
    state.occur(RankSaves(member.id, message.generation))
    if message.is_first:
        _note_prints(state, message)
        return
    is_new = state.progress.saves.get(message.path) != message.step
    _note_save(state, message)
    _note_prints(state, message)
    if is_new:
        path = message.path.rsplit("/", 1)[-1]
        state.announce("CheckpointSaved", f"{member.id} finished saving {path} at step {message.step}.", member.id)
    if state.stage == RUNNING:
        if message.step - counts_from > world.keeping.finished:  # else it has counted, and comes to storage only now
            state.checkpoint_step = message.step
        state.occur(CheckpointFinished(member.id, message))
        readiness.stir(state)


def _note_save(state: State, message: Saved) -> None:
    state.progress.saves.pop(message.path, None)
    state.progress.saves[message.path] = message.step
    while len(state.progress.saves) > SAVES_KEPT:
        del state.progress.saves[next(iter(state.progress.saves))]


def _note_prints(state: State, message: Saved) -> None:
    """Of files that saves of two steps have in common nothing can be said: 0."""
    for each in message.prints:
        known = state.progress.prints.pop(each, message.step)
        state.progress.prints[each] = message.step if known == message.step else 0
    while len(state.progress.prints) > PRINTS_KEPT:
        del state.progress.prints[next(iter(state.progress.prints))]
