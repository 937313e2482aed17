"""Steps, checkpoints and lost time.

Lost time is measured from the moment of the highest absolute step ever made: a fault costs the seconds from that moment
to the first step beyond it, repeated steps included. Members report ages instead of times, so their clocks do not
matter.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.account import stages
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
    """Notes the number of steps that a rank had made at a moment, by its own count."""
    if step <= 0:
        return
    if state.world is not None and generation == state.world.generation:
        step += state.world.resume.counts_from
    if step < state.progress.high_step:
        return
    if state.progress.first_step is None:
        state.progress.first_step = step
    if step > state.progress.high_step:
        if generation == state.progress.high_step_generation and state.progress.high_step_at is not None:
            state.counters.note_steps(at - state.progress.high_step_at, step - state.progress.high_step)
        state.progress.high_step, state.progress.high_step_at, state.progress.high_step_generation = (
            step,
            at,
            generation,
        )
    elif generation == state.progress.high_step_generation:
        state.progress.high_step_at = max(state.progress.high_step_at or at, at)


def note_report(state: State, member: Member, report: Report) -> None:
    """Notes the steps in a member's report, in O(the member's own ranks)."""
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
    """The age that a rank reports, or 0 if it is negative or exceeds the job's own age."""
    return age if 0 <= age <= state.now - state.began_at else 0.0


def made_no_step(state: State, exit: WorkerExit) -> bool:
    """Whether the rank ended where it started: at step 0, or at exactly the step of a known checkpoint."""
    return exit.step == 0 or exit.step in state.progress.saves.values()


def stepped(state: State, member: Member, message: Stepped) -> None:
    """Handles a step beyond the highest one so far: no more time is being lost."""
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
    """Reports the recovery once training is beyond the step it had reached.

    The report depends on what this generation resumed from, which its reports say within a second. At the end of the
    generation it no longer waits for that.
    """
    if world.resume.passed is None or world.recovered:
        return
    world.recovered = True
    _recover(state, world, *world.resume.passed)


def read_in_log(state: State, world: World, step: int, at: float) -> None:
    """Notes a step from a line of a rank's output; it counts only if the hooks see no step."""
    if world.made_step:
        return
    if step > state.progress.high_step and not world.recovered:
        world.recovered = True
        _recover(state, world, at, step)
    note_step(state, world.generation, step, at)


def _trains(state: State, world: World) -> None:
    """Notes that ranks train: a resize can now request a save by signal instead of waiting for a checkpoint."""
    if not world.made_step and state.spec.save_signal:
        readiness.note_resize(state)
    world.made_step = True


def _recover(state: State, world: World, at: float, step: int) -> None:
    """Divides the lost seconds among the open faults.

    Each fault is charged from its own moment (the first one from the last step) to the next fault, the last one to the
    new step. If the step may be a repeated one, a repeated error still counts as the same error.
    """
    verdict = world.resume.verdict
    state.faults.note_step(is_new=verdict != UNKNOWN)
    if state.phase == "restarting":
        state.phase = "running"
    open_faults = [fault for fault in state.faults.noted if fault.seconds_lost is None]
    begin = generation_resume.lost_from(state, world)
    if begin is None:
        return
    total = max(0.0, at - begin)
    open_faults[-1].stages = stages.of_recovery(state, world, at)
    state.progress.seconds_lost += total
    for fault, following in zip(open_faults, [*open_faults[1:], None], strict=True):
        until = at if following is None else min(max(following.at, begin), at)
        fault.seconds_lost = max(0.0, until - begin)
        state.counters.note_fault(fault)
        begin = until
    if verdict == UNKNOWN:
        state.message = "training continued from an unknown step"  # `generation.resume` has reported it
    elif verdict == OVER:
        _announce_caught_up(state, world, open_faults[-1], total, step)
    else:
        _announce_recovery(state, open_faults, total, step, had_trained=world.lost_from is not None)
    state.mark_status()


def note_cost(state: State, fault: Fault, at: float) -> None:
    """Charges a fault with all the time since it happened."""
    fault.seconds_lost = max(0.0, at - fault.at)
    state.counters.note_fault(fault)
    state.progress.seconds_lost += fault.seconds_lost


def _announce_recovery(state: State, faults: list[Fault], total: float, step: int, *, had_trained: bool) -> None:
    cause = faults[-1].kind if len(faults) == 1 else f"{len(faults)} faults"
    state.message = f"training continued at step {step}" if had_trained else "training has started"
    state.announce(
        "Recovered",
        f"Training is past step {step - 1}, where it was before {cause}: {exactly(total)} were lost"
        f"{stages.slowest(faults[-1].stages)}."
        if had_trained
        else f"Training starts at step {step}, {exactly(total)} after {cause}; no step was made before it.",
        faults[-1].member,
        detail=(("seconds_lost", f"{total:.3f}"), ("step", str(step)), *_stages_ms(faults[-1])),
    )


def _stages_ms(fault: Fault) -> tuple[tuple[str, str], ...]:
    return tuple((f"{stage}_ms", f"{1000 * seconds:.0f}") for stage, seconds in fault.stages.items())


def _announce_caught_up(state: State, world: World, fault: Fault, total: float, step: int) -> None:
    state.message = f"training continued at step {step} after it had started over"
    state.announce(
        "CaughtUp",
        f"Training is past step {step - 1} again, where it was before {fault.kind}: "
        f"{counted(world.resume.high, 'step')} were repeated and {exactly(total)} lost{stages.slowest(fault.stages)}.",
        fault.member,
        detail=(
            ("seconds_lost", f"{total:.3f}"),
            ("step", str(step)),
            ("repeated", str(world.resume.high)),
            *_stages_ms(fault),
        ),
    )


def saved(state: State, member: Member, message: Saved) -> None:
    """Handles a finished checkpoint: at this moment a resize loses no work."""
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
    state.counters.saved_at = state.now
    if is_new:
        path = message.path.rsplit("/", 1)[-1]
        state.announce("CheckpointSaved", f"{member.id} finished saving {path} at step {message.step}.", member.id)
    if state.stage == RUNNING:
        if message.step - counts_from > world.keeping.finished:  # else it counted when it was in memory
            state.checkpoint_step = message.step
        state.occur(CheckpointFinished(member.id, message))
        readiness.stir(state)


def _note_save(state: State, message: Saved) -> None:
    state.progress.saves.pop(message.path, None)
    state.progress.saves[message.path] = message.step
    while len(state.progress.saves) > SAVES_KEPT:
        del state.progress.saves[next(iter(state.progress.saves))]


def _note_prints(state: State, message: Saved) -> None:
    """Notes the step of each file's fingerprint; 0 if saves of two steps have the same one."""
    for each in message.prints:
        known = state.progress.prints.pop(each, message.step)
        state.progress.prints[each] = message.step if known == message.step else 0
    while len(state.progress.prints) > PRINTS_KEPT:
        del state.progress.prints[next(iter(state.progress.prints))]
