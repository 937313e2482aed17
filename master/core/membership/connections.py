"""Connections, Hellos, and what members report about themselves.

A connection is bound to a member only by a Hello that names the job, the member and the uid that the platform gave to
the member's pod. A newer connection of the same pod replaces the older one. What a sidecar reports as running is
compared with what it should run. This reveals at once an exit whose message was lost with a connection, and a member
that thaws after the job continued without it.
"""

from __future__ import annotations

from outrider.master.core.actions import CloseSession, Send
from outrider.master.core.checkpoints import memory_tier
from outrider.master.core.faults import recovery
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import lifecycle, orders, probe_ring, readiness
from outrider.master.core.membership import failure_detector, past_lease, unreached
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import REBUILDING, RUNNING, STOPPING, State
from outrider.master.core.state.member import GONE, Member
from outrider.master.core.state.occurrences import WorkersStarted
from outrider.master.core.text import counted
from outrider.wire.ids import NO_GENERATION, MemberId
from outrider.wire.messages.generation import MODES, Ready, Started, StartFailed, Stopped
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.membership import PROTOCOL_VERSION, Hello, Refused, Welcome
from outrider.wire.messages.report import Report

REPORT_EVERY = 1.0
CONFIRM_WITHIN = 5.0
"""Seconds that a restarted sidecar has to find the worker processes: template and launcher reconnect within 2 s."""
TICKET_EVERY = 1800.0
"""Seconds between two Welcomes to one member. Each carries a ticket that is valid for twice as long
(`k8s.values.session_ticket`): with it the next master recognizes the member without asking the API server."""
NEWER_AGAIN = 5.0
"""Seconds until a refused sidecar of a newer version tries again: an upgrade is under way or was rolled back."""
READY_OVERDUE = 15.0
"""Seconds that the other members wait for a member's Ready after its Stopped."""


# -- connections --------------------------------------------------------------------------------------------------
def greet(state: State, session: str, hello: Hello) -> None:
    """Binds the connection of a Hello to its member, or refuses the connection with a reason."""
    refusal = _why_refused(state, hello)
    if refusal is not None:
        sentence, retry_after = refusal
        state.act(Send(session, hello.member, Refused(sentence, retry_after), state.generation, sentence))
        state.act(CloseSession(session, sentence, state.generation))
        if hello.member not in state.placement.past and (
            retry_after < 0 or retry_after >= 2
        ):  # a member that is gone may still send Hellos
            _report_refusal(state, hello.member, sentence)
        return
    member = state.members[hello.member]
    past_lease.note_term(state, hello)
    if hello.unsupervised:
        unreached.runs_alone(state, session, member)
        return
    unreached.greeted(state, member, hello)
    _bind(state, session, member, hello)
    if state.is_over:
        orders.resend(state, member)
        generation_job_end.appeared(state, member)
        return
    _compare(state, member, hello)
    member.isolated = hello.isolated
    orders.resend(state, member)
    readiness.refresh(state, member)


def _report_refusal(state: State, member_id: MemberId, sentence: str) -> None:
    """Reports a member's refusal once, even if its sidecar tries again and again."""
    member = state.members.get(member_id)
    if member is None or member.refusal != sentence:
        state.announce("SidecarRejected", sentence, member_id, warning=True)
    if member is not None:
        member.refusal = sentence


def _why_refused(state: State, hello: Hello) -> tuple[str, float] | None:
    name = state.spec.name
    if hello.job != name:
        return (f"{hello.member} belongs to job {hello.job!r}, but this is the master of job {name!r}.", -1.0)
    if hello.member in state.placement.past:
        return (
            f"{hello.member} is no longer a member of job {name!r}: {_why_past(state.placement.past[hello.member])}.",
            -1.0,
        )
    member = state.members.get(hello.member)
    if member is None and _is_no_longer_listed(state, hello):
        why = f"the platform no longer lists its pod (uid {hello.uid}) as one of the job's pods"
        return (f"{hello.member} is no longer a member of job {name!r}: {why}.", -1.0)
    if member is None or member.uid is None:
        return (f"The platform has not listed a pod {hello.member} of job {name!r} yet; the sidecar tries again.", 0.2)
    if hello.uid != member.uid:
        return (
            f"{hello.member} belongs to the pod with uid {member.uid}, but this connection comes from a pod "
            f"with uid {hello.uid}; only one of them can be {hello.member}.",
            -1.0,
        )
    if hello.version > PROTOCOL_VERSION:
        return (
            f"{hello.member} uses protocol version {hello.version}, but this master supports versions up to "
            f"{PROTOCOL_VERSION}. The member continues and tries again; run the same version of Outrider on both.",
            NEWER_AGAIN,
        )
    return None


def _is_no_longer_listed(state: State, hello: Hello) -> bool:
    """Whether an earlier master knew this very pod and the platform's list lacks it.

    Its label was removed meanwhile, or it was deleted by force and still runs.
    """
    known = state.earlier.placed.get(hello.member)
    return known is not None and known.uid == hello.uid and state.listed and state.stage != REBUILDING


def _why_past(member: Member) -> str:
    if member.taken_out:
        return member.taken_out
    return "its pod failed" if member.life != GONE else "its pod is gone"


def _bind(state: State, session: str, member: Member, hello: Hello) -> None:
    if member.session != session:
        close(state, member, f"{member.id} has a newer connection.")
    first = not member.greeted
    member.session, member.greeted, member.ready, member.refusal = session, True, None, ""
    state.membership.sessions[session] = member.id
    member.address, member.probe_port, member.machine = hello.address, hello.probe_port, hello.machine
    member.memory_port, member.memory_key = hello.memory_port, hello.memory_key
    member.running, member.finished, member.highest = hello.running, hello.finished, hello.highest
    member.offers = hello.offers
    member.ordered = max(member.ordered, hello.running, hello.highest if hello.finished else NO_GENERATION)
    if hello.trainer_pid:
        member.mode, member.mode_reason = MODES.get(hello.rung, hello.rung), hello.rung_reason
        member.trainer_pid = hello.trainer_pid
    state.membership.crowd.note(member)
    failure_detector.heard(state, member)
    if first:
        failure_detector.watch(state, member)
    welcome(state, member, f"{member.id} is connected.")


def welcome(state: State, member: Member, reason: str) -> None:
    """Sends a sidecar the part of the job's policy that it needs; also after that policy was edited."""
    if member.session is None:
        return
    spec = state.spec
    message = Welcome(
        state.term,
        report_every=REPORT_EVERY,
        silent_after=spec.silent_after,
        neighbours=_neighbours(state, member),
        stop_grace=spec.stop_grace,
        handler_grace=spec.handler_grace,
        save_grace=spec.save_grace,
        hands_off=spec.observed,
    )
    state.act(Send(member.session, member.id, message, state.generation, reason))
    state.deadlines.set(("ticket", member.id), state.now + TICKET_EVERY)
    memory_tier.again(state, member)


def renew_ticket(state: State, member_id: str) -> None:
    """Sends a member a new ticket on its present connection; a new connection brings its own."""
    member = state.members.get(MemberId(member_id))
    if member is not None and not state.is_over:
        welcome(state, member, f"{member.id} receives a new ticket.")


def _neighbours(state: State, member: Member) -> tuple[Neighbour, ...]:
    """The neighbours of a member whose sidecar was restarted and has forgotten its Start."""
    world = _running_world(state, member)
    return probe_ring.of(state, world, member.id) if world is not None else ()


def _compare(state: State, member: Member, hello: Hello) -> None:
    """Compares what the member runs with what it should run, and acts on a difference."""
    world = state.world
    own = world if world is not None and member.id in world.places and state.stage == RUNNING else None
    if hello.isolated and state.stage != REBUILDING:
        _was_isolated(state, member, hello, own)
    elif own is not None and hello.running == own.generation:
        own.started.add(member.id)
        state.deadlines.cancel(("confirm", member.id))
        orders.drop_starts(state, member, own.generation)
    elif own is not None and hello.finished and hello.highest == own.generation:
        recovery.member_done(state, member)
    elif own is not None and member.id in own.started and hello.highest < own.generation:
        state.deadlines.set(("confirm", member.id), state.now + CONFIRM_WITHIN)
    elif own is not None and member.id in own.started:
        reason = f"{member.id} reports that none of its worker processes of generation {own.generation} is left."
        recovery.begin(state, "WorkersGone", reason, member, free=own.generation.term < state.term)
    elif hello.running != NO_GENERATION:
        stop_leftover(state, member)
    elif own is None and hello.finished and state.stage != REBUILDING:
        reason = f"{member.id} had finished generation {hello.highest}, which is over."
        lifecycle.stop_member(state, member, hello.highest, reason)
    elif own is None and hello.highest >= member.ordered:
        member.stopped = max(member.stopped, member.ordered)


def _was_isolated(state: State, member: Member, hello: Hello, own: World | None) -> None:
    """Handles a member that stopped its ranks by itself because it was cut off.

    The member reports this on each connection until it starts a newer generation.
    """
    generation = max(hello.running, hello.highest)
    if hello.isolated != member.isolated or (own is not None and own.generation == generation):
        recovery.member_isolated(state, member, f"{member.id} reports: {hello.isolated}.", generation)
    if hello.running != NO_GENERATION:
        stop_leftover(state, member)
    elif own is None and hello.highest >= member.ordered:
        member.stopped = max(member.stopped, member.ordered)


def unconfirmed(state: State, member_id: str) -> None:
    """Judges a restarted sidecar that has had `CONFIRM_WITHIN` to find the worker processes started before it."""
    member = state.members.get(MemberId(member_id))
    world = None if member is None else _running_world(state, member)
    if member is None or world is None or member.session is None or member.id in world.done:
        return
    if member.report is None or member.report.generation != world.generation:
        is_inherited = world.generation.term < state.term
        what = "runs nothing of" if is_inherited else "was restarted and finds no worker processes of"
        reason = f"{member.id}'s sidecar {what} generation {world.generation}."
        # free if an earlier master sent the Start, which may have been lost: no rank is known to have ended
        recovery.begin(state, "WorkersGone", reason, member, free=is_inherited)


def stop_leftover(state: State, member: Member) -> None:
    """Stops what a member runs besides the running generation.

    That must end before the member can be ready. However long this master has waited already, no generation forms that
    could include the member until then.
    """
    if state.stage == REBUILDING or orders.has_stop(member, member.running):
        return
    member.overdue = False
    state.deadlines.set(("patience", member.id), state.now + orders.longest_stop(state.spec))
    reason = f"{member.id} still runs generation {member.running}, which is over."
    lifecycle.stop_member(state, member, member.running, reason)


def close(state: State, member: Member, reason: str) -> None:
    """Closes the member's connection for both directions."""
    if member.session is not None:
        state.membership.sessions.pop(member.session, None)
        state.act(CloseSession(member.session, reason, state.generation))
        member.session = None


def disconnected(state: State, session: str) -> None:
    """Notes a broken connection: nothing can be sent, and only continued silence is evidence of a fault."""
    member_id = state.membership.sessions.pop(session, None)
    member = state.members.get(member_id) if member_id is not None else None
    if member is not None and member.session == session:
        member.session = None
        readiness.refresh(state, member)


# -- what members report ------------------------------------------------------------------------------------------
def ready(state: State, member: Member, message: Ready) -> None:
    """Handles Ready: no old process is alive on the member, and the port that it offers is unused."""
    if message.after > member.stopped:
        member.stopped = message.after
        orders.drop_stops(state, member, message.after)
    member.nproc, member.mode_reason = message.nproc, message.rung_reason
    member.mode = MODES.get(message.rung, message.rung)
    member.trainer_pid, member.max_restarts = message.trainer_pid, message.max_restarts
    if member.stopped < member.ordered:
        return
    world = _running_world(state, member)
    if world is not None and message.after >= world.generation and member.id not in world.done:
        reason = f"{member.id} has stopped generation {world.generation} on the order of an earlier master."
        recovery.begin(state, "WorkersGone", reason, member, free=True)
    first = not member.mode_reported
    member.ready, member.trainer_lost, member.overdue, member.mode_reported = message, False, False, True
    state.deadlines.cancel(("unready", member.id))
    state.deadlines.cancel(("patience", member.id))
    if first:
        processes = f"{message.nproc} worker process{'' if message.nproc == 1 else 'es'}"
        text = f"{member.id} is ready for {processes} in mode {member.mode}: {member.mode_reason}"
        state.announce("MemberReady", text.rstrip(".") + ".", member.id)
    if state.stage != REBUILDING:
        lifecycle.refuse_used_port(state, member)
    readiness.refresh(state, member)


def started(state: State, member: Member, message: Started) -> None:
    orders.drop_starts(state, member, message.generation)
    world = _running_world(state, member)
    if world is None or message.generation != world.generation:
        return
    is_new = member.id not in world.started
    if is_new:
        state.occur(WorkersStarted())
    world.started.add(member.id)
    if member.rank_index is not None:
        state.account.changed.add(member.rank_index)
    if len(world.started) == len(world.places):
        state.deadlines.cancel(("start", str(world.generation.number)))
        readiness.stir(state)
        memory_tier.begin(state, world)
        _runs(state, world, is_new)


def _runs(state: State, world: World, is_new: bool) -> None:
    members = counted(len(world.places), "member")
    state.phase, state.message = "running", f"generation {world.generation} runs with {members}"
    state.mark_status()
    if is_new:
        behind = f"; the highest step so far is {state.progress.high_step}" if state.progress.high_step else ""
        who = f"{members}, {counted(world.world_size, 'rank')}" if state.spec.names_ranks else next(iter(world.places))
        state.announce("GenerationRunning", f"Generation {world.generation} runs with {who}{behind}.")


def start_failed(state: State, member: Member, message: StartFailed) -> None:
    orders.acknowledge(state, member, message.order)
    world = _running_world(state, member)
    if world is not None and message.generation == world.generation:
        reason = f"{member.id} could not start generation {message.generation}: {message.error.rstrip('.')}."
        recovery.start_failed(state, member, reason, message.error)


def stopped(state: State, member: Member, message: Stopped) -> None:
    """Handles Stopped: the member has reaped every process of the generation."""
    orders.drop_stops(state, member, message.generation)
    member.stopped = max(member.stopped, message.generation)
    if member.stopped >= member.ordered:
        member.running = NO_GENERATION
    if member.ready is not None and member.ready.after < message.generation:
        member.ready = None
    recovery.note_stop(state, member, message)
    if state.stage == STOPPING and member.ready is None:
        state.deadlines.set(("unready", member.id), state.now + READY_OVERDUE)
    readiness.refresh(state, member)


def unready(state: State, member_id: str) -> None:
    """Lets the others continue without a member that stopped `READY_OVERDUE` ago and is still not ready."""
    member = state.members.get(MemberId(member_id))
    if member is not None and state.world is not None and member.id in state.world.waiting:
        reason = f"{member.id} stopped {READY_OVERDUE:.0f} s ago and is not ready yet; the job continues without it."
        state.announce("ReadyOverdue", reason, member.id, warning=True)
        readiness.stop_waiting_for(state, member)


def check_report(state: State, member: Member, report: Report) -> None:
    """Compares what a report says to be running with what should run, as for a Hello; O(1) if they agree."""
    world = state.world
    if state.stage == REBUILDING or report.generation == NO_GENERATION or report.state not in ("starting", "running"):
        return
    if world is not None and report.generation == world.generation and member.id in world.places:
        return
    if report.generation > member.stopped:
        member.running = report.generation
        stop_leftover(state, member)


def _running_world(state: State, member: Member) -> World | None:
    world = state.world
    return world if world is not None and state.stage == RUNNING and member.id in world.places else None
