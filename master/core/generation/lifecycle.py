"""Forming, starting and stopping a generation.

Laws: the status of a generation is saved before any Start is sent, so that no later master can form another generation
of the same number. A generation is stopped on all members in the step that learns of a fault. The next one forms in the
step in which the last survivor has stopped and is ready again: no timer stands between a crash and the restart.
"""

from __future__ import annotations

from outrider.master.core.account import ledger
from outrider.master.core.generation import (
    formation,
    layout,
    log_patterns,
    observe_only,
    orders,
    probe_ring,
    readiness,
    stages,
)
from outrider.master.core.generation import resume as generation_resume
from outrider.master.core.state.generation import Place, World
from outrider.master.core.state.job import COMMITTING, GATHERING, STOPPING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import GenerationStarted
from outrider.master.core.text import counted
from outrider.wire.ids import NO_GENERATION, Generation, OrderId
from outrider.wire.messages.generation import Start, Stop

SAVES_SENT, PRINTS_SENT = 16, 32
START_OVERDUE = 60.0
"""Seconds after which a Start that a member has not answered is a fault of that member."""
WRITE_DELAY = 0.5


def try_form(state: State) -> None:
    """Forms the next generation if nothing is against it."""
    if state.stage == GATHERING and (chosen := formation.of(state).members):
        _form(state, chosen)


def _form(state: State, chosen: list[Member]) -> None:
    world = decide(state, chosen)
    state.save_status(
        f"Generation {world.generation} is decided: {counted(len(chosen), 'member')}, "
        f"{counted(world.world_size, 'rank')}; it is saved before it starts.",
    )


def decide(state: State, chosen: list[Member]) -> World:
    first = chosen[0].ready
    assert first is not None
    state.number += 1
    places = layout.places(chosen)
    world = World(
        generation=Generation(state.term, state.number),
        places=places,
        address=chosen[0].address,
        port=first.port,
        version=state.status.version + 1,
        world_size=sum(p.nproc for p in places.values()),
        formed_at=state.now,
        lost_from=state.progress.high_step_at if any(f.seconds_lost is None for f in state.faults.noted) else None,
    )
    state.progress.first_world = state.progress.first_world or world.world_size
    state.met[chosen[0].id] = (world.generation, world.port)
    stages.move(state, "generation decided")
    state.world, state.left, state.patient = world, None, False
    state.resize, state.restart_wanted = "", ""
    state.deadlines.cancel(("resize", ""))
    state.message = f"generation {world.generation} forms with {counted(len(chosen), 'member')}"
    return world


def start(state: State) -> None:
    """Sends Start to all members of the saved generation."""
    world = state.world
    assert world is not None
    stages.move(state, "generation started")
    state.message = f"generation {world.generation} starts"
    world.start_sent_at = state.now
    allowed = max_restarts(state)
    saves = tuple(list(state.progress.saves.items())[-SAVES_SENT:])
    prints = tuple([each for each in state.progress.prints.items() if each[1]][-PRINTS_SENT:])
    generation_resume.begin(state, world)
    for place in world.places.values():
        member = state.members[place.member]
        member.ordered, member.ready, member.finished = world.generation, None, False
        state.deadlines.cancel(("confirm", member.id))  # it was about an older generation
        readiness.refresh(state, member)
        _start(state, world, member, place, allowed, saves, prints)
    state.deadlines.set(("start", str(world.generation.number)), state.now + START_OVERDUE)
    state.occur(GenerationStarted())
    readiness.note_resize(state)


def _start(
    state: State,
    world: World,
    member: Member,
    place: Place,
    allowed: int,
    saves: tuple[tuple[str, int], ...],
    prints: tuple[tuple[str, int], ...],
) -> None:
    reason = _how_it_starts(state, world, member, place)

    def make(order: OrderId) -> Start:
        return Start(
            order=order,
            generation=world.generation,
            restart_count=world.generation.number - 1,
            master_addr=world.address,
            master_port=world.port,
            group_rank=place.group_rank,
            group_world_size=len(world.places),
            first_rank=place.first_rank,
            nproc=place.nproc,
            world_size=world.world_size,
            role=place.role,
            role_first_rank=place.role_first_rank,
            role_world_size=place.role_world_size,
            rank_index=place.rank_index,
            max_restarts=allowed,
            job=state.spec.name,
            high_step=state.progress.high_step,
            saves=saves,
            prints=prints,
            reason=reason,
            neighbours=probe_ring.of(state, world, member.id),
            patterns=log_patterns.of(state, place),
            elastic_data=state.spec.elastic_data,
            keep_batch_of=state.progress.first_world if state.spec.keep_global_batch else 0,
            require_resume=state.spec.require_resume,
            begins_from=world.begins_from[0],
            begins_in=world.begins_from[1],
        )

    orders.give(state, member, make, reason)
    detail = _rendezvous_line(world, place) if state.spec.has_rendezvous else ()
    state.announce("GenerationStarted", reason, member.id, detail=detail)


def _how_it_starts(state: State, world: World, member: Member, place: Place) -> str:
    if not state.spec.has_rendezvous:
        return f"Generation {world.generation} of {member.id} starts: it is {place.role} {place.rank_index}."
    last_rank = place.first_rank + place.nproc - 1
    ranks = f"rank {last_rank}" if place.nproc == 1 else f"ranks {place.first_rank} to {last_rank}"
    return (
        f"Generation {world.generation} starts on {member.id} with {ranks} of "
        f"{world.world_size}, rendezvous at {world.address}:{world.port}."
    )


def _rendezvous_line(world: World, place: Place) -> tuple[tuple[str, str], ...]:
    ranks = range(place.first_rank, place.first_rank + place.nproc)
    return (
        ("restart_count", str(world.generation.number - 1)),
        ("master_addr", world.address),
        ("master_port", str(world.port)),
        ("group_rank", str(place.group_rank)),
        ("group_world_size", str(len(world.places))),
        ("local_ranks", str(list(range(place.nproc)))),
        ("global_ranks", str(list(ranks))),
        ("world_size", str(world.world_size)),
    )


def max_restarts(state: State) -> int:
    """The limit of restarts that the user gave to Outrider, else that of an inner launcher, else the default."""
    if not state.spec.max_restarts_asked:
        requested = [m.max_restarts for m in state.members.values() if m.max_restarts is not None]
        if requested:
            return max(requested)
    return state.spec.max_restarts


def stop(state: State, reason: str) -> None:
    """Stops the generation on all members at once.

    A generation for which no Start was sent is only forgotten; that of a job that is over ends with the job.
    """
    world = state.world
    if world is None or state.stage == STOPPING or state.is_over:
        return
    if state.stage != COMMITTING and observe_only.would(state, _what(state, world), reason):
        return
    drop_fetches(state, world)
    if state.stage == COMMITTING:
        stages.move(state, "generation dropped")
        state.world, state.message = None, reason
        readiness.stir(state)
        return
    ledger.stops(state)
    stages.move(state, "stop ordered")
    state.phase, state.message = "restarting", reason
    state.deadlines.cancel(("start", str(world.generation.number)))
    for member_id in world.places:
        member = state.members.get(member_id)
        if member is not None:
            _stop(state, world, member, reason)
    state.status.hold(state.now + WRITE_DELAY)
    state.deadlines.set(("stop", str(world.generation.number)), state.now + orders.longest_stop(state.spec))
    readiness.stir(state)


def _what(state: State, world: World) -> str:
    whose = f" of {', '.join(world.places)}" if state.spec.counts_generations_alone else ""
    return f"stop generation {world.generation}{whose}"


def leave(state: State) -> None:
    """Leaves the old generation: as far as is known, none of its processes runs any more."""
    world = state.world
    assert world is not None
    state.deadlines.cancel(("stop", str(world.generation.number)))
    generation_resume.end(state, world)
    ledger.left(state)
    stages.move(state, "nothing runs any more")
    state.world, state.left = None, world


def _stop(state: State, world: World, member: Member, reason: str) -> None:
    stop_member(state, member, world.generation, reason)
    if readiness.is_worth_waiting_for(member):
        world.waiting.add(member.id)


def drop_fetches(state: State, world: World) -> None:
    """Drops all orders to fetch replicas, and the deadlines for them."""
    for kind in ("fetch", "copied"):
        state.deadlines.cancel((kind, str(world.generation.number)))
    for member_id in world.places:
        member = state.members.get(member_id)
        if member is not None:
            orders.drop_fetches(state, member)
    world.keeping.orders.clear()
    if world.restoring is not None:
        world.restoring.orders.clear()


def stop_member(state: State, member: Member, generation: Generation, reason: str, *, hard: bool = False) -> None:
    """Orders one member to end all processes of this generation and of lower ones.

    A higher generation that an earlier master started after losing its Lease is stopped too.
    """
    generation = max(generation, member.highest)
    orders.drop_starts(state, member, generation)
    if orders.has_stop(member, generation):
        return
    spec = state.spec
    graces = (0.0, 0.0, 0.0) if hard else (spec.stop_grace, spec.handler_grace, spec.save_grace)
    member.ready = None
    member.ordered = max(member.ordered, generation)
    readiness.refresh(state, member)
    orders.give(state, member, lambda order: Stop(order, generation, *graces, reason), reason, generation)


def refuse_used_port(state: State, member: Member) -> None:
    """Requests a new port from a member that offers the port of an earlier generation.

    The member never received that generation's Start, and the master that sent it is gone. Other members of that
    generation may still try to meet at the port.
    """
    generation, port = state.met.get(member.id, (NO_GENERATION, 0))
    is_current = state.world is not None and state.world.generation == generation
    if is_current or member.ready is None or member.ready.port != port or member.ready.after >= generation:
        return
    reason = f"Generation {generation} never started on {member.id}, whose port it used: a new port is needed."
    stop_member(state, member, generation, reason)


def give_up_waiting(state: State, number: str) -> None:
    """Continues without the members that have not stopped within all grace periods, of those that could.

    A member that was cut off has all of them from the moment at which it could receive the Stop: it may still save.
    """
    world = state.world
    if world is None or state.stage != STOPPING or str(world.generation.number) != number:
        return
    ends = {member_id: orders.stops_until(state, member_id) for member_id in world.waiting}
    late = {member_id: at for member_id, at in ends.items() if at > state.now + 1e-6}
    for member_id in sorted(world.waiting - late.keys()):
        state.announce(
            "StopOverdue",
            f"{member_id} has not ended the processes of generation {world.generation} within all grace periods; the "
            f"next generation forms without it.",
            member_id,
            warning=True,
        )
    world.waiting.intersection_update(late)
    if late:
        state.deadlines.set(("stop", number), min(late.values()))
    readiness.stir(state)
