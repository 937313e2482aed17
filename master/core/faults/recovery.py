"""Notes faults, finds their root cause, and stops the generation; `verdict` decides whether the job continues.

A fault stops the generation in the step that learns of it. The root cause is found only after the survivors have
stopped, because the first message is often an effect: a member that is killed with all its processes shows as exits of
its own ranks, or as broken connections on the others, before the platform reports that it is gone. So an incident
collects the evidence of one generation's end, and `verdict.settle` judges it. If the loss of a member is reported
within ten seconds, it becomes the root cause, and the restart is given back to the budget.

These cost a restart of the budget: worker processes that end by themselves, a template that dies, a start that fails.
These are free: lost, silent and leaving members, a conflict over the rendezvous port, resizes, restarts that the user
requested, and ranks of an earlier master's generation that are gone without a report of how: that master may have
stopped them. A crash loop cannot hide there, because each generation has one term: each free restart needs another
master.
"""

from __future__ import annotations

from outrider.master.core.faults import causes, error_signature, failure_policy, node_exclusion
from outrider.master.core.faults import verdict as faults_verdict
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import lifecycle, progress, readiness
from outrider.master.core.generation import resume as generation_resume
from outrider.master.core.state import budgets
from outrider.master.core.state.generation import Failure, Fault, Incident, World
from outrider.master.core.state.job import COMMITTING, REBUILDING, RUNNING, STOPPING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import FaultNoted, RankDone
from outrider.master.core.text import counted
from outrider.wire.ids import NO_GENERATION, Generation
from outrider.wire.messages.generation import Exited, Stopped, WorkerExit
from outrider.wire.messages.membership import TrainerExited, TrainerLost

EFFECT_WITHIN = 10.0
"""Seconds after an end within which an error of torch.distributed is its effect, and within which the loss of a member
explains earlier failures."""
IMPORT_HOLD = 1.0
"""Seconds for which the first generation continues after an exception at import, to see if all ranks fail alike."""
FAULTS_KEPT = 200
LOSSES = ("MemberLost", "MemberSilent", "MemberFailed", "MemberIsolated", "MemberExcluded", "SidecarExited",
          node_exclusion.PARTED)  # fmt: skip


# -- ends of ranks and trainers -----------------------------------------------------------------------------------
def exited(state: State, member: Member, message: Exited) -> None:
    """Worker processes ended by themselves, with any code. A new master defers this until it knows the generation."""
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
    """All worker processes of the member ended with code 0."""
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
    """The template or launcher died, and its worker processes with it."""
    member.ready, member.trainer_lost, member.running = None, True, NO_GENERATION
    readiness.refresh(state, member)
    world = state.world
    reason = f"{member.id}: {message.reason}."
    if world is None or member.id not in world.places:
        state.announce("TrainerLost", reason, member.id, warning=True)
        return
    if state.stage != STOPPING or not _becomes_cause(state, member, "TrainerLost", reason, free=False):
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
    reason = f"The command of {member.id} ended with code {message.code} outside any generation"
    state.announce("TrainerExited", f"{reason}.", member.id, warning=message.code != 0)
    codes = [m.trainer_code for m in state.members.values() if m.rank_index is not None]
    if None not in codes and len(set(codes)) == 1:
        if message.code == 0:
            generation_job_end.succeed(state)
        else:
            generation_job_end.fail(state, message.code, f"{reason}; the command of every member ended with this code.")
    elif message.code != 0 and member.trainer_exits >= state.spec.crash_loop:
        generation_job_end.fail(state, message.code, f"{reason}; this happened {member.trainer_exits} times.")


def start_failed(state: State, member: Member, reason: str, error: str) -> None:
    begin(state, "StartFailed", reason, member, free=bool(member.leaving) or member.deleting)
    incident = state.faults.incident
    if incident is not None and error_signature.is_port_clash_text(error):
        incident.free = faults_verdict.is_free_port_clash(state)


def start_overdue(state: State, number: str) -> None:
    """Some members did not answer a Start in time."""
    world = state.world
    if world is None or state.stage != RUNNING or str(world.generation.number) != number:
        return
    late = sorted(set(world.places) - world.started)
    if late:
        reason = (
            f"{', '.join(late)} did not start generation {world.generation} within {lifecycle.START_OVERDUE:.0f} s."
        )
        members = [state.members.get(i) for i in late]
        unheard = all(m is None or m.session is None or m.suspicion is not None for m in members)
        begin(state, "StartOverdue", reason, members[0], free=unheard)  # the order never arrived, so no start failed


def note_stop(state: State, member: Member, message: Stopped) -> None:
    """A survivor has stopped: notes its last step, and when that was."""
    progress.note_step(state, message.generation, message.step, state.now - message.step_age)


# -- the incident -------------------------------------------------------------------------------------------------
def begin(state: State, kind: str, reason: str, member: Member | None, *, free: bool = False) -> None:
    """Notes a fault of the running generation and stops the generation, in this step. If it is stopping already, the
    fault belongs to the same recovery."""
    if state.is_over:
        return
    fault = _note(state, kind, reason, member)
    if state.stage == RUNNING:
        state.faults.incident = Incident(state.generation, fault, state.now, free=free)
        lifecycle.stop(state, reason)
    elif state.stage == COMMITTING:
        lifecycle.stop(state, reason)


def _note(state: State, kind: str, reason: str, member: Member | None, exit: WorkerExit | None = None) -> Fault:
    if state.world is not None:
        progress.settle(state, state.world)
    node = node_exclusion.node_at_fault(kind, member, exit)
    fault = Fault(state.now, kind, member.id if member else None, reason, state.generation, node=node)
    state.faults.noted.append(fault)
    del state.faults.noted[:-FAULTS_KEPT]
    state.faults.counts[kind] = state.faults.counts.get(kind, 0) + 1
    state.announce(kind, reason, fault.member, warning=True)
    node_exclusion.look(state)
    state.occur(FaultNoted(node))
    state.mark_status()
    return fault


def _set_cause(
    state: State, fault: Fault, kind: str, member: Member | None, reason: str, exit: WorkerExit | None
) -> None:
    """Replaces the root cause of a fault by another one."""
    fault.kind, fault.member, fault.reason = kind, member.id if member else fault.member, reason
    fault.node = node_exclusion.node_at_fault(kind, member, exit)
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
    incident = state.faults.incident
    if state.stage == RUNNING and (incident is None or incident.generation != generation):
        _open(state, world, member, failures)
    elif incident is not None and incident.generation == generation:
        _add(state, world, incident, failures)


def _failure(state: State, world: World, member: Member, rank: int, end: WorkerExit) -> Failure:
    ruling = failure_policy.of_exit(state, world.generation, member, rank, end)
    return Failure(member.id, rank, state.now - end.age, end, error_signature.is_effect(end),
                   failure_policy.signature(state, member, end, ruling), ruling, not state.spec.names_ranks,
                   error_signature.about_its_address(state.spec.own_address, end)
                   or _though_done(world, end))  # fmt: skip


def _though_done(world: World, end: WorkerExit) -> str:
    """A rank that waits for one that has ended well fails as if that one had crashed, so the sentence names it."""
    if not world.done or not error_signature.is_effect(end):
        return ""
    first = min(world.done, key=lambda member: world.places[member].first_rank)
    others = f" and {counted(len(world.done) - 1, 'other')}" if len(world.done) > 1 else ""
    return f", after {first}{others} had ended with code 0"


def _open(state: State, world: World, member: Member, failures: list[Failure]) -> None:
    """Opens the incident with the first failure of this generation."""
    cause = causes.first(failures)
    fault = _note(state, "WorkerExited", causes.sentence(cause), member, cause.exit)
    state.faults.incident = Incident(world.generation, fault, state.now, failures)
    if _is_at_import(state, world, failures):
        if _all_failed_alike(world, failures):
            faults_verdict.all_fail_at_import(state, state.faults.incident, world)
            return
        state.deadlines.set(("hold", str(world.generation.number)), state.now + IMPORT_HOLD)
        state.message = (
            f"{causes.sentence(cause)} It failed before its first step; the master waits to see if all ranks do."
        )
        return
    lifecycle.stop(state, fault.reason)


def _add(state: State, world: World, incident: Incident, failures: list[Failure]) -> None:
    """Adds failures to the incident; the first rank to fail is the root cause, effects come last."""
    incident.failures.extend(failures)
    cause = causes.first(incident.failures)
    for failure in failures:
        what = "as an effect of the first failure" if failure.is_effect else "at the same moment"
        sentence = causes.sentence(failure)
        reason = sentence if failure is cause else f"{sentence.rstrip('.')}, {what}."
        state.announce("WorkerExited", reason, failure.member, warning=True)
    if incident.fault.kind in ("WorkerExited", "WorkersGone"):
        incident.free = incident.free and cause.is_effect
        member = state.members.get(cause.member)
        _set_cause(state, incident.fault, "WorkerExited", member, causes.sentence(cause), cause.exit)
        incident.fault.member = cause.member
    if state.stage == RUNNING and _is_at_import(state, world, failures):
        if _all_failed_alike(world, incident.failures):
            faults_verdict.all_fail_at_import(state, incident, world)
    elif state.stage == RUNNING:
        lifecycle.stop(state, incident.fault.reason)


def evidence(state: State, generation: Generation) -> list[Failure]:
    incident = state.faults.incident
    return incident.failures if incident is not None and incident.generation == generation else []


# -- errors of the script at import -------------------------------------------------------------------------------
def _is_at_import(state: State, world: World, failures: list[Failure]) -> bool:
    """Whether all failures are exceptions of the script itself, or arguments that it rejects, before any step of the
    whole job, in its first generation or the one after."""
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
    """Not every rank failed at import, so this is a fault like any other."""
    world, incident = state.world, state.faults.incident
    if world is None or incident is None or state.stage != RUNNING or str(world.generation.number) != number:
        return
    lifecycle.stop(state, incident.fault.reason)


# -- members that are lost ----------------------------------------------------------------------------------------
def member_lost(state: State, member: Member, kind: str, reason: str) -> None:
    """A member is gone, or its silence is confirmed. It costs no restart, and may explain earlier failures."""
    world = state.world
    if world is not None and member.id in world.done and state.stage == RUNNING:
        state.announce(kind, reason, member.id)
        return
    in_world = world is not None and member.id in world.places
    is_explanation = _becomes_cause(state, member, kind, reason)
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
    """A member was cut off and stopped this generation by itself. If the master had not noticed, the generation ends
    now at no cost, because no rank failed. It may explain what other ranks reported."""
    world = state.world
    if world is not None and state.stage == RUNNING and world.generation == generation and member.id in world.places:
        begin(state, "MemberIsolated", reason, member, free=True)
    elif not _becomes_cause(state, member, "MemberIsolated", reason):
        state.announce("MemberIsolated", reason, member.id, warning=True)


def is_torn(state: State) -> bool:
    """Whether ranks have ended recently with nothing but errors of torch.distributed, no loss of a member explains it,
    and no later generation trains yet."""
    incident, world = state.faults.incident, state.world
    if incident is None or not incident.failures or not all(failure.is_effect for failure in incident.failures):
        return False
    if state.now - incident.began_at > EFFECT_WITHIN or incident.fault.kind in LOSSES:
        return False
    return world is None or world.generation == incident.generation or not world.made_step


def partitioned(state: State, kind: str, reason: str, member: Member) -> None:
    """This member is replaced because it and another cannot reach each other: that ends the generation."""
    incident, world = state.faults.incident, state.world
    if incident is not None and is_torn(state):
        incident.free = True
        if incident.charged:
            incident.charged = False
            budgets.give_back(state.faults.restarts)
        if state.stage == STOPPING and world is not None and world.generation == incident.generation:
            _set_cause(state, incident.fault, kind, member, reason, None)
            state.announce(kind, reason, member.id, warning=True)
            return
    begin(state, kind, reason, member, free=True)


def _becomes_cause(state: State, member: Member, kind: str, reason: str, *, free: bool = True) -> bool:
    """Whether this loss is the root cause of the newest incident; if so, makes it that."""
    incident = state.faults.incident
    if incident is None or state.now - incident.began_at > EFFECT_WITHIN or incident.fault.kind == kind:
        return False
    if incident.fault.kind in LOSSES:
        return False
    world = state.world
    if world is not None and world.generation != incident.generation and member.id in world.places:
        return False  # it took part in a later generation, so this is another fault
    own = [f for f in incident.failures if not f.is_effect]
    is_own = all(f.member == member.id for f in own) and (incident.failures or incident.fault.member == member.id)
    if not is_own:
        return False
    _set_cause(state, incident.fault, kind, member, reason, None)
    incident.free = free
    if incident.charged and free:
        incident.charged = False
        budgets.give_back(state.faults.restarts)
    cost = "; it costs no restart" if free else ""
    state.announce(kind, f"{reason} This explains the earlier failures of ranks{cost}.", member.id,
                   warning=True)  # fmt: skip
    return True


def started_over(state: State, world: World) -> None:
    """The job started over although the user requires that it resumes."""
    why = "the job fails, because it must resume (--require-resume, requireResume)"
    generation_job_end.fail(
        state, 1, f"{generation_resume.what_was_done(world.resume)}: {why}. {generation_resume.FLAGS}."
    )
