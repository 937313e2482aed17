"""What a generation resumes from: a checkpoint that it has loaded, or nothing although one exists.

A script that starts at step 0 again after each fault keeps training, and its user learns that a day later from the loss
curve. The ranks' progress pages say from which step of a known checkpoint they resume, and whether one of those files
was opened in a way that the hooks do not know. For a job without any seen save (pickle, numpy, another program) they
say whether a file was read that was written during training. The verdict follows once every member has made a step:
often only rank 0 loads, and the others have its state by then.

If the verdict is unknown, steps are counted on from the highest one: `step` is then the number of optimizer steps made,
including repeated ones, and not the script's own count. The lost time ends with the first step of every member, since
it is unknown which step is beyond the one that training had reached.
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.master.core.generation import readiness
from outrider.master.core.state.generation import LOADED, NOTHING_SAVED, OVER, UNKNOWN, Resume, World
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.text import counted, exactly
from outrider.wire.messages.report import RankProgress

FLAGS = "The script may need a flag to load it, such as --resume or --init_from=resume"
PATIENCE = 10.0
"""Seconds to wait, after the first step of any member, for a step of every member: some steps may stay unseen."""


def begin(state: State, world: World) -> None:
    """Prepares the verdict of a generation whose ranks are about to start."""
    resume = world.resume
    resume.high = state.progress.high_step
    if state.progress.high_step and state.spec.watches_resume:
        resume.path, resume.saved = max(state.progress.saves.items(), key=lambda save: save[1], default=("", 0))
        resume.verdict = ""


def end(state: State, world: World) -> None:
    """Adds the steps that the ended generation repeated to those of the job."""
    state.progress.steps_repeated += world.resume.repeated
    world.resume.reached = 0


def lost_from(state: State, world: World) -> float | None:
    """The moment since which time is being lost; None if no fault's cost is open."""
    first = next((fault.at for fault in state.faults.noted if fault.seconds_lost is None), None)
    return first if first is None or world.lost_from is None else world.lost_from


def look(state: State, member: Member, ranks: Iterable[RankProgress]) -> None:
    """Reads the progress pages of a member's ranks, in O(the member's own ranks)."""
    world = state.world
    assert world is not None
    resume = world.resume
    for rank in ranks:
        if rank.base < 0:
            resume.verdict = resume.verdict or NOTHING_SAVED  # sidecars of older releases do not report it
        if rank.step > rank.base and rank.phase != "init":
            if member.id not in resume.stepping:
                age = rank.step_age if 0 <= rank.step_age <= state.now - world.formed_at else 0.0
                resume.stepped_at = max(resume.stepped_at, state.now - age)
            resume.stepping.add(member.id)
            resume.since = state.now if resume.since is None else resume.since
            resume.reached = max(resume.reached, rank.step)
        resume.base = max(resume.base, rank.base)
        resume.was_opened |= rank.opened
    decide(state, world)


def decide(state: State, world: World) -> None:
    resume = world.resume
    if resume.verdict:
        return
    if resume.base:
        resume.verdict = LOADED
    elif len(resume.stepping) == len(world.places):
        _decided(state, world, UNKNOWN if resume.was_opened else OVER if resume.path else NOTHING_SAVED)
    elif resume.since is not None and state.now - resume.since >= PATIENCE:
        _decided(state, world, UNKNOWN if resume.path or resume.was_opened else NOTHING_SAVED)


def _decided(state: State, world: World, verdict: str) -> None:
    resume = world.resume
    resume.verdict = verdict
    if verdict == UNKNOWN:
        resume.counts_from, resume.passed = resume.high, (resume.stepped_at, resume.high + 1)
        state.progress.step_estimated = True
        readiness.note_resize(state)  # a resize may wait for a save, and no save is seen
        _report_unknown(state, world)
    elif verdict == OVER:
        _report_over(state, resume)
    state.mark_status()


def what_was_done(resume: Resume) -> str:
    """The beginning of a sentence about a script that has started over."""
    file = resume.path.rsplit("/", 1)[-1]
    return f"The script started at step 0 again and did not load {file}, which it had saved at step {resume.saved}"


def _report_unknown(state: State, world: World) -> None:
    resume, begin = world.resume, lost_from(state, world)
    lost = None if begin is None else max(0.0, resume.stepped_at - begin)
    file = resume.path.rsplit("/", 1)[-1]
    seen = (
        f"No load of {file}, saved at step {resume.saved}, was seen, but the script may have read it in a way that the "
        "hooks do not see"
        if resume.path
        else "No save was seen, but the script has read a file that was written during training, which may be a "
        "checkpoint"
    )
    cost = "" if lost is None else f" {exactly(lost)} were lost until its first step, plus the time of repeated steps."
    state.announce(
        "ResumeUnknown",
        f"{seen}. It is unknown from which step generation {world.generation} continues and how many steps it repeats; "
        f"its steps are counted from {resume.high} on.{cost}",
        detail=(
            ("counted_from", str(resume.high)),
            *(() if lost is None else (("seconds_lost", f"{lost:.3f}"),)),
        ),
    )


def _report_over(state: State, resume: Resume) -> None:
    state.announce(
        "StartedOver",
        f"{what_was_done(resume)}: {counted(resume.high, 'step')} are repeated, as after every fault. {FLAGS}.",
        warning=True,
        detail=(("path", resume.path), ("saved", str(resume.saved)), ("repeated", str(resume.high))),
    )
