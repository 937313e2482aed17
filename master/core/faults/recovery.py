"""Faults: what was seen, who is to blame, and what is free. Whether the job goes on, `verdict` says.

A fault stops the world in the step that learns of it. Who is to blame is looked at only when the survivors have
stopped, because the first message is often an effect: a member that is killed with its whole tree shows as exits of
its own ranks, or as broken connections on the others, before the platform says that it is gone. So an episode collects
the evidence of one generation's end, `verdict.settle` judges it, and a member's loss that is told within ten seconds
takes the blame and gives the restart budget back.

What costs a restart of the budget: worker processes that end by themselves, a template that dies, a start that fails.
What is free: lost, silent and leaving members, a clash over the rendezvous port, resizes, restarts that were asked for,
and ranks of an earlier master's generation that are gone without a word of how: that master may have stopped them. A
crash loop cannot hide there, because each generation has one term: it takes another master for every free one.
"""

from __future__ import annotations

from outrider.master.core.faults import causes, error_signature, failure_policy, node_exclusion
from outrider.master.core.faults import verdict as faults_verdict
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import lifecycle, progress, readiness
from outrider.master.core.generation import resume as generation_resume
from outrider.master.core.state import budgets
from outrider.master.core.state.generation import Episode, Failure, Fault, World
from outrider.master.core.state.job import COMMITTING, REBUILDING, RUNNING, STOPPING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import FaultNoted, RankDone
from outrider.master.core.text import counted
from outrider.wire.ids import NO_GENERATION, Generation
from outrider.wire.messages.generation import Exited, Stopped, WorkerExit
from outrider.wire.messages.membership import TrainerExited, TrainerLost

EFFECT_WITHIN = 10.0
"""Seconds after another end within which an error of torch.distributed is its effect, and within which the loss of a
member explains what was seen before."""
IMPORT_HOLD = 1.0
"""How long the first generation is left alone after an exception at import: do all ranks fail the same way?"""
FAULTS_KEPT = 200
LOSSES = ("MemberLost", "MemberSilent", "MemberFailed", "MemberIsolated", "MemberExcluded", "SidecarExited",
          node_exclusion.PARTED)  # fmt: skip


# -- what ended ---------------------------------------------------------------------------------------------------
def exited(state: State, member: Member, message: Exited) -> None:
    """Worker processes ended by themselves, well or badly. A new master keeps it until it knows the world."""
    if state.stage == REBUILDING:
        state.earlier.defer(member.id, message)
        return
    for end in message.exits:
        progress.note_step(state, message.generation, end.step, state.now - end.age)
    bad = [end for end in message.exits if end.code != 0]
    world = state.world
    if len(bad) < len(message.exits) and world is not None and world.generation == message.generation:
        state.occur(RankDone())
    if bad:
        _failed(state, member, message.generation, bad)
    elif message.alive == 0 and world is not None and world.generation == message.generation:
        member_done(state, member)


def member_done(state: State, member: Member) -> None:
    """All worker processes of the member ended with 0."""
    world = state.world
    if world is None or state.stage != RUNNING or member.id not in world.places or member.id in world.done:
        return
    if any(f.member == member.id for f in evidence(state, world.generation)):
        return
    member.finished = True
    world.done.add(member.id)
    state.announce("MemberSucceeded", f"All worker processes of {member.id} have ended with code 0.", member.id)
    if len(world.done) == len(world.places):
        generation_job_end.succeed(state)


def trainer_lost(state: State, member: Member, message: TrainerLost) -> None:
    """The template or launcher died, its workers with it."""
    member.ready, member.trainer_lost, member.running = None, True, NO_GENERATION
    readiness.refresh(state, member)
    world = state.world
    reason = f"{member.id}: {message.reason}."
    if world is None or member.id not in world.places:
        state.announce("TrainerLost", reason, member.id, warning=True)
        return
    if state.stage != STOPPING or not _take_blame(state, member, "TrainerLost", reason, free=False):
        begin(state, "TrainerLost", reason, member)
    for end in message.exits:
        progress.note_step(state, world.generation, end.step, state.now - end.age)
    readiness.stop_waiting_for(state, member)


def trainer_exited(state: State, member: Member, message: TrainerExited) -> None:
    """The trainer's command ended outside any generation."""
    member.ready, member.trainer_lost = None, True
    member.trainer_exits += 1
    member.trainer_code = message.code
    readiness.refresh(state, member)
    reason = f"The command of {member.id} ended with code {message.code} outside any generation: {message.reason}"
    state.announce("TrainerExited", reason, member.id, warning=message.code != 0)
    codes = [m.trainer_code for m in state.members.values() if m.rank_index is not None]
    if None not in codes and len(set(codes)) == 1:
        if message.code == 0:
            generation_job_end.succeed(state)
        else:
            generation_job_end.fail(state, message.code, f"{reason}; so it did on every member.")
    elif message.code != 0 and member.trainer_exits >= state.spec.crash_loop:
        generation_job_end.fail(state, message.code, f"{reason}; that was {member.trainer_exits} times.")


def start_failed(state: State, member: Member, reason: str, error: str) -> None:
    begin(state, "StartFailed", reason, member, free=bool(member.leaving) or member.deleting)
    episode = state.faults.episode
    if episode is not None and error_signature.is_port_clash_text(error):
        episode.free = faults_verdict.is_free_port_clash(state)


def start_overdue(state: State, number: str) -> None:
    """Some members never answered a Start."""
    world = state.world
    if world is None or state.stage != RUNNING or str(world.generation.number) != number:
        return
    late = sorted(set(world.places) - world.started)
    if late:
        reason = f"{', '.join(late)} did not start generation {world.generation} in {lifecycle.START_OVERDUE:.0f} s."
        members = [state.members.get(i) for i in late]
        unheard = all(m is None or m.session is None or m.doubt is not None for m in members)
        begin(state, "StartOverdue", reason, members[0], free=unheard)  # the order never came there: no start failed


def note_stop(state: State, member: Member, message: Stopped) -> None:
    """A survivor has stopped: how far it came, and when."""
    progress.note_step(state, message.generation, message.step, state.now - message.step_age)


# -- the episode --------------------------------------------------------------------------------------------------
def begin(state: State, kind: str, reason: str, member: Member | None, *, free: bool = False) -> None:
    """A fault of the running world: it is noted and the world is stopped, in this step. In a world that is stopping
    already it is one more fault of the same recovery."""
    if state.is_over:
        return
    fault = _note(state, kind, reason, member)
    if state.stage == RUNNING:
        state.faults.episode = Episode(state.generation, fault, state.now, free=free)
        lifecycle.stop(state, reason)
    elif state.stage == COMMITTING:
        lifecycle.stop(state, reason)


def _note(state: State, kind: str, reason: str, member: Member | None, exit: WorkerExit | None = None) -> Fault:
    if state.world is not None:
        progress.settle(state, state.world)
    node = node_exclusion.blamed(kind, member, exit)
    fault = Fault(state.now, kind, member.id if member else None, reason, state.generation, node=node)
    state.faults.noted.append(fault)
    del state.faults.noted[:-FAULTS_KEPT]
    state.faults.counts[kind] = state.faults.counts.get(kind, 0) + 1
    state.announce(kind, reason, fault.member, warning=True)
    node_exclusion.look(state)
    state.occur(FaultNoted(node))
    state.mark_status()
    return fault


def _blame(state: State, fault: Fault, kind: str, member: Member | None, reason: str, exit: WorkerExit | None) -> None:
    """It was another one's fault than it seemed."""
    fault.kind, fault.member, fault.reason = kind, member.id if member else fault.member, reason
    fault.node = node_exclusion.blamed(kind, member, exit)
    node_exclusion.look(state)
    state.occur(FaultNoted(fault.node))
    state.mark_status()


def _failed(state: State, member: Member, generation: Generation, bad: list[WorkerExit]) -> None:
    world = state.world
    if world is None or world.generation != generation or member.id not in world.places:
        return
    first_rank = world.places[member.id].first_rank
    failures = [_failure(state, world, member, first_rank + end.local_rank, end) for end in bad]
    if any(not progress.made_no_step(state, end) for end in bad):
        world.made_step = True
    episode = state.faults.episode
    if state.stage == RUNNING and (episode is None or episode.generation != generation):
        _open(state, world, member, failures)
    elif episode is not None and episode.generation == generation:
        _add(state, world, episode, failures)


def _failure(state: State, world: World, member: Member, rank: int, end: WorkerExit) -> Failure:
    ruling = failure_policy.of_exit(state, world.generation, member, rank, end)
    return Failure(member.id, rank, state.now - end.age, end, error_signature.is_effect(end),
                   failure_policy.signature(state, member, end, ruling), ruling, not state.spec.names_ranks,
                   error_signature.about_its_address(state.spec.own_address, end)
                   or _though_done(world, end))  # fmt: skip


def _though_done(world: World, end: WorkerExit) -> str:
    """A rank that waits for one that has ended well fails as if that one had crashed."""
    if not world.done or not error_signature.is_effect(end):
        return ""
    first = min(world.done, key=lambda member: world.places[member].first_rank)
    others = f" and {counted(len(world.done) - 1, 'other')}" if len(world.done) > 1 else ""
    return f", after {first}{others} had ended with code 0"


def _open(state: State, world: World, member: Member, failures: list[Failure]) -> None:
    """The first bad end of this generation."""
    cause = causes.first(failures)
    fault = _note(state, "WorkerExited", causes.sentence(cause), member, cause.exit)
    state.faults.episode = Episode(world.generation, fault, state.now, failures)
    if _is_at_import(state, world, failures):
        if _all_failed_alike(world, failures):
            faults_verdict.all_fail_at_import(state, state.faults.episode, world)
            return
        state.deadlines.set(("hold", str(world.generation.number)), state.now + IMPORT_HOLD)
        state.message = f"{causes.sentence(cause)} It did so before its first step; do all ranks?"
        return
    lifecycle.stop(state, fault.reason)


def _add(state: State, world: World, episode: Episode, failures: list[Failure]) -> None:
    """More ends of a generation that is known to have failed: the first rank to fail is to blame, effects last."""
    episode.failures.extend(failures)
    cause = causes.first(episode.failures)
    for failure in failures:
        what = "an effect of it" if failure.is_effect else "at the same moment"
        said = causes.sentence(failure)
        reason = said if failure is cause else f"{said.rstrip('.')}: {what}."
        state.announce("WorkerExited", reason, failure.member, warning=True)
    if episode.fault.kind in ("WorkerExited", "WorkersGone"):
        episode.free = episode.free and cause.is_effect
        blamed = state.members.get(cause.member)
        _blame(state, episode.fault, "WorkerExited", blamed, causes.sentence(cause), cause.exit)
        episode.fault.member = cause.member
    if state.stage == RUNNING and _is_at_import(state, world, failures):
        if _all_failed_alike(world, episode.failures):
            faults_verdict.all_fail_at_import(state, episode, world)
    elif state.stage == RUNNING:
        lifecycle.stop(state, episode.fault.reason)


def evidence(state: State, generation: Generation) -> list[Failure]:
    episode = state.faults.episode
    return episode.failures if episode is not None and episode.generation == generation else []


# -- the script's own error at import -----------------------------------------------------------------------------
def _is_at_import(state: State, world: World, failures: list[Failure]) -> bool:
    """An exception of the script itself, or arguments that it does not take, before any step of the whole job, in its
    first generation or the one after."""
    if state.progress.high_step > 0 or world.made_step or world.generation.number > 2:
        return False
    return state.spec.holds_all_ranks and all(_is_of_the_script(f) for f in failures)


def _is_of_the_script(failure: Failure) -> bool:
    end = failure.exit
    is_usage = not end.error_type and end.code == error_signature.USAGE and end.step == 0
    is_raised = (
        end.in_import and bool(end.error_type) and not failure.is_effect and not error_signature.is_port_clash(end)
    )
    return is_raised or is_usage


def _all_failed_alike(world: World, failures: list[Failure]) -> bool:
    return len({f.rank for f in failures}) == world.world_size and len({f.signature for f in failures}) == 1


def end_hold(state: State, number: str) -> None:
    """Not every rank failed at import: it is a fault like any other."""
    world, episode = state.world, state.faults.episode
    if world is None or episode is None or state.stage != RUNNING or str(world.generation.number) != number:
        return
    lifecycle.stop(state, episode.fault.reason)


# -- members that are lost ----------------------------------------------------------------------------------------
def member_lost(state: State, member: Member, kind: str, reason: str) -> None:
    """A member is gone, or its silence was confirmed. Costs no restart; explains what was seen just before."""
    world = state.world
    if world is not None and member.id in world.done and state.stage == RUNNING:
        state.announce(kind, reason, member.id)
        return
    in_world = world is not None and member.id in world.places
    is_explanation = _take_blame(state, member, kind, reason)
    if in_world and state.stage in (RUNNING, COMMITTING):
        if is_explanation:
            lifecycle.stop(state, reason)
        else:
            begin(state, kind, reason, member, free=True)
    elif not is_explanation and (in_world or member.rank_index is not None):
        _note(state, kind, reason, member)
    elif not is_explanation:
        state.announce(kind, reason, member.id, warning=True)
    if state.stage == STOPPING:
        readiness.stop_waiting_for(state, member)
    readiness.note_staffing(state)


def member_isolated(state: State, member: Member, reason: str, generation: Generation) -> None:
    """It was cut off and stopped this generation by itself. Where nobody had noticed, the world is over now, and at no
    cost: no rank failed. That its ranks were gone explains what others saw of it."""
    world = state.world
    if world is not None and state.stage == RUNNING and world.generation == generation and member.id in world.places:
        begin(state, "MemberIsolated", reason, member, free=True)
    elif not _take_blame(state, member, "MemberIsolated", reason):
        state.announce("MemberIsolated", reason, member.id, warning=True)


def is_torn(state: State) -> bool:
    """Ranks have ended lately with errors of torch.distributed and nothing else; no loss of a member explains it, and
    no later generation has come to train."""
    episode, world = state.faults.episode, state.world
    if episode is None or not episode.failures or not all(failure.is_effect for failure in episode.failures):
        return False
    if state.now - episode.began_at > EFFECT_WITHIN or episode.fault.kind in LOSSES:
        return False
    return world is None or world.generation == episode.generation or not world.made_step


def partitioned(state: State, kind: str, reason: str, member: Member) -> None:
    """Two members cannot see each other, and this one goes: that ends the world, and explains how its ranks ended."""
    episode, world = state.faults.episode, state.world
    if episode is not None and is_torn(state):
        episode.free = True
        if episode.charged:
            episode.charged = False
            budgets.give_back(state.faults.restarts)
        if state.stage == STOPPING and world is not None and world.generation == episode.generation:
            _blame(state, episode.fault, kind, member, reason, None)
            state.announce(kind, reason, member.id, warning=True)
            return
    begin(state, kind, reason, member, free=True)


def _take_blame(state: State, member: Member, kind: str, reason: str, *, free: bool = True) -> bool:
    """Is this loss what the newest episode was about?"""
    episode = state.faults.episode
    if episode is None or state.now - episode.began_at > EFFECT_WITHIN or episode.fault.kind == kind:
        return False
    if episode.fault.kind in LOSSES:
        return False
    world = state.world
    if world is not None and world.generation != episode.generation and member.id in world.places:
        return False  # it took part in a later world, so this is another fault
    own = [f for f in episode.failures if not f.is_effect]
    is_own = all(f.member == member.id for f in own) and (episode.failures or episode.fault.member == member.id)
    if not is_own:
        return False
    _blame(state, episode.fault, kind, member, reason, None)
    episode.free = free
    if episode.charged and free:
        episode.charged = False
        budgets.give_back(state.faults.restarts)
    cost = "; it costs no restart" if free else ""
    state.announce(kind, f"{reason} That explains the ends of ranks seen before{cost}.", member.id,
                   warning=True)  # fmt: skip
    return True


def started_over(state: State, world: World) -> None:
    """The user wants no second beginning."""
    why = "the job ends for that, as it was asked to (--require-resume, requireResume)"
    generation_job_end.fail(
        state, 1, f"{generation_resume.what_was_done(world.resume)}: {why}. {generation_resume.FLAGS}."
    )
