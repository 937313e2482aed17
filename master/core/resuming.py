"""What a generation goes on from: a checkpoint that it has loaded, or nothing although there is one.

A script that begins at step 0 again after each fault trains on, and its user learns it a day later from the loss curve.
The ranks' pages say from which step of a known checkpoint they go on, and whether one of those files was opened in a
way that the hooks do not know. Of a job of which no save was seen (pickle, numpy, another program) they say whether a
file was read that was written while it trained. It is decided once every member has made a step: often only rank 0
loads, and the others have its state by then.
"""

from __future__ import annotations

from collections.abc import Iterable

from master.core import status
from master.core.member import Member
from master.core.state import State
from master.core.wording import counted
from master.core.world import LOADED, NOTHING_SAVED, OVER, UNKNOWN, Resume, World
from wire.messages import RankProgress

FLAGS = "The script may want a flag for it, such as --resume or --init_from=resume"
PATIENCE = 10.0
"""Seconds from the first step of any member to those of all: one may make none that is seen."""


def begin(state: State, world: World) -> None:
    """Ranks are about to start. What earlier ones have made twice is counted."""
    resume = world.resume
    resume.high = state.high_step
    if state.high_step and not state.spec.is_ps:
        resume.path, resume.saved = max(state.saves.items(), key=lambda save: save[1], default=("", 0))
        resume.verdict = ""


def end(state: State, world: World) -> None:
    """Its ranks make no further step."""
    state.steps_repeated += world.resume.repeated
    world.resume.reached = 0


def look(state: State, member: Member, ranks: Iterable[RankProgress]) -> None:
    """O(the member's own ranks): what its pages say."""
    world = state.world
    assert world is not None
    resume = world.resume
    for rank in ranks:
        if rank.base < 0:
            resume.verdict = resume.verdict or NOTHING_SAVED  # a sidecar of an older release does not say it
        if rank.step > rank.base and rank.phase != "init":
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
    world.resume.verdict = verdict
    _tell(state, world)
    status.mark(state)


def what_was_done(resume: Resume) -> str:
    """By a script that has started over, as the beginning of a sentence."""
    file = resume.path.rsplit("/", 1)[-1]
    return f"The script began at step 0 again, though it saved {file} at step {resume.saved} and did not load it"


def _tell(state: State, world: World) -> None:
    resume = world.resume
    if resume.verdict == NOTHING_SAVED:
        return
    if not resume.path:
        state.announce(
            "ResumeUnknown",
            "No save was seen, but the script has read a file that was written while it trained, which may be a "
            f"checkpoint. Generation {world.generation} counts its steps from 0, wherever it goes on.",
        )
        return
    if resume.verdict == UNKNOWN:
        file = resume.path.rsplit("/", 1)[-1]
        state.announce(
            "ResumeUnknown",
            f"No load of {file}, saved at step {resume.saved}, was seen, but the script may have read it in a way that "
            f"the hooks do not see. Generation {world.generation} counts its steps from 0, wherever it goes on.",
        )
        return
    state.announce(
        "StartedOver",
        f"{what_was_done(resume)}: {counted(resume.high, 'step')} are repeated, and so at each fault. {FLAGS}.",
        warning=True,
        detail=(("path", resume.path), ("saved", str(resume.saved)), ("repeated", str(resume.high))),
    )
