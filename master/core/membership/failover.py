"""Failover: a new master takes over what runs without disturbing what is healthy.

It knows the last generation from the saved status, and the pods from the platform. The rest comes from the members'
Hellos: it waits until every known pod has sent one, at most `silent_after`. If all members that sent one run the saved
generation, that generation is adopted as it is. A member that sent none is then judged by its silence like any other; a
member that runs nothing of the generation has had a fault while no master watched. If the members do not agree, all
processes are stopped and a new generation forms. It has a higher term, and its number continues from the saved one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from outrider.master.core.faults import log_rules, pod_replacement, recovery
from outrider.master.core.generation import lifecycle, readiness, stages
from outrider.master.core.membership import failure_detector
from outrider.master.core.state.generation import UNKNOWN, Place, Resume, World
from outrider.master.core.state.job import REBUILDING, RUNNING, State
from outrider.master.core.state.member import ENDED_WELL, Member, in_order
from outrider.master.core.state.occurrences import GenerationAdopted
from outrider.master.core.text import counted
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, RankIndex, Role
from outrider.wire.messages.log_lines import LineMatched


def begin(state: State) -> None:
    """Starts to wait for the Hellos of the members."""
    stages.move(state, "earlier master left a job")
    state.phase = "restarting"
    state.message = "a new master waits for the members"
    state.announce("MasterStarted", f"A new master (term {state.term}) waits for the members that an earlier master "
                                    f"started.")  # fmt: skip
    state.deadlines.set(("rebuild", ""), state.now + state.spec.silent_after)


def advance(state: State) -> None:
    """Decides at once if every member has sent its Hello."""
    if state.stage == REBUILDING and state.listed and all(map(_needs_no_waiting, state.members.values())):
        decide(state)


def _needs_no_waiting(member: Member) -> bool:
    has_spoken = member.greeted or member.pod_phase == ENDED_WELL
    return has_spoken or bool(member.sidecar_ended) or member.is_stranger


def overdue(state: State) -> None:
    """Decides without the members that sent no Hello in time, but not before the platform has listed the pods."""
    if state.stage != REBUILDING:
        return
    if not state.listed:
        state.deadlines.set(("rebuild", ""), state.now + state.spec.silent_after)
        return
    decide(state)


def decide(state: State) -> None:
    """Adopts the running generation, or stops everything so that a new one can form."""
    state.deadlines.cancel(("rebuild", ""))
    running = {m.running for m in state.members.values() if m.running != NO_GENERATION}
    progress = cast("Mapping[str, object]", (state.earlier.saved_world or {}).get("progress") or {})
    world = _world_before(state, running)
    if state.earlier.is_left and len(running) == 1:
        world = _reported_world(state, *running)
    highest = max((m.ordered for m in state.members.values()), default=NO_GENERATION)
    state.number = max(state.number, highest.number)
    if world is not None and state.membership.strangers.intersection(world.places):
        world = None  # it may run, but this master can send its members no orders
    if world is not None and (running == {world.generation} or (not running and _was_started(state, world))):
        _adopt(state, world)
        state.occur(GenerationAdopted(progress))
    else:
        _clear(state, running)
    for member in [m for _id, m in sorted(state.members.items())]:
        if not member.greeted and member.address and member.pod_phase != ENDED_WELL:
            _judge_by_silence(state, member)
        lifecycle.refuse_used_port(state, member)
    readiness.note_staffing(state)
    state.mark_status()


def _world_before(state: State, running: set[Generation]) -> World | None:
    """The saved generation, under the number that its members report.

    An earlier master may have restarted it after losing its Lease (`membership.past_lease`), under a number that was
    reserved for it. That may also be a generation that the status shows as stopped.
    """
    saved, left = _saved_world(state.earlier.saved_world, state), _saved_world(state.earlier.saved_left, state)
    state.earlier.saved_world = state.earlier.saved_left = None
    world = saved or left
    if world is None:
        return None
    there = [state.members[i] for i in world.places if i in state.members]
    term, up_to = state.earlier.saved_numbers
    reported = running or {max((m.highest for m in there if m.greeted), default=NO_GENERATION)}
    strays = [m for m in state.members.values() if m.running in running and m.id not in world.places]
    newest = max(reported)
    if len(reported) == 1 and not strays and newest.term == term and world.generation.number < newest.number <= up_to:
        world.generation, state.number = newest, max(state.number, newest.number)
        return world
    return saved


def _was_started(state: State, world: World) -> bool:
    """Whether a generation of which nothing runs was ever started.

    All of its ranks may have ended, with 0 or not, while no master watched.
    """
    members = [state.members.get(i) for i in world.places]
    if not any(m is not None and m.greeted for m in members):
        return True  # no member has sent a Hello, so nothing is known; adopting it disturbs the least
    return any(m is not None and (m.highest == world.generation or m.pod_phase == ENDED_WELL) for m in members)


def _adopt(state: State, world: World) -> None:
    stages.move(state, "generation adopted")
    state.world, state.phase, state.patient = world, "running", False
    text = (
        f"The new master takes over generation {world.generation} of {counted(len(world.places), 'member')} "
        "without stopping it."
    )
    state.message = text
    state.announce("GenerationAdopted", text)
    world.saver = next((i for i in world.places if i in state.members and state.members[i].offers), None)
    _replay(state)
    readiness.note_resize(state)  # members may have been ready before the world was known
    missing = [i for i in world.places if i not in state.members]
    members = [state.members[i] for i in world.places if i in state.members]
    gone = [member for member in members if not _adopt_member(state, world, member)]
    if missing and state.stage == RUNNING:
        _continue_without(state, missing)
    elif gone and not recovery.evidence(state, world.generation):
        names = ", ".join(member.id for member in gone)
        cut_off = next((member for member in gone if member.isolated), None)
        if cut_off is not None:
            reason = f"{cut_off.id} reports: {cut_off.isolated}."
            recovery.begin(state, "MemberIsolated", reason, cut_off, free=True)
            return
        reason = f"No rank of generation {world.generation} is left on {names}: all ended while no master watched."
        # free until a rank is reported as failed: the earlier master may have stopped them for a fault that was free
        recovery.begin(state, "WorkersGone", reason, gone[0], free=True)


def _continue_without(state: State, missing: list[MemberId]) -> None:
    """Handles members of the adopted generation that are gone.

    They went while no master watched, or while this master waited for the other members.
    """
    past = state.placement.past
    unseen = [i for i in missing if i not in past]
    left = [past[i] for i in missing if i in past and not past[i].lost_by_fault]
    if unseen:
        verb = "was" if len(unseen) == 1 else "were"
        reason = f"{' and '.join(unseen)} {verb} lost while no master watched."
        recovery.begin(state, "MemberLost", reason, None, free=True)
    elif left:
        names = " and ".join(member.id for member in left)
        deleted = "its pod was deleted" if len(left) == 1 else "their pods were deleted"
        reason = f"{names} {'has' if len(left) == 1 else 'have'} left: {left[0].leaving or deleted}."
        recovery.begin(state, "MemberLeftEarly", reason, left[0], free=True)
    else:  # their loss was already reported as a fault
        lifecycle.stop(state, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} lost.")


def _replay(state: State) -> None:
    """Handles the ends of ranks that were reported before this master knew the generation."""
    deferred, state.earlier.deferred = state.earlier.deferred, []
    for member_id, message in deferred:
        member = state.members.get(member_id)
        if member is None:
            continue
        if isinstance(message, LineMatched):
            log_rules.follow(state, member, message)
        elif not member.finished:
            recovery.exited(state, member, message)
            pod_replacement.exited(state, member, message)


def _adopt_member(state: State, world: World, member: Member) -> bool:
    """Adopts one member; False if it runs nothing of that generation and did not finish it.

    Its sidecar soon reports how the ranks ended; that report then names the cause.
    """
    member.ordered = max(member.ordered, world.generation)
    is_known = True
    if not member.greeted and not member.finished:
        _judge_by_silence(state, member)
        world.started.add(member.id)
    elif member.running == world.generation and not member.isolated:
        world.started.add(member.id)
    elif member.finished:
        world.started.add(member.id)
        recovery.member_done(state, member)
    else:
        is_known = False
    readiness.refresh(state, member)
    return is_known


def _judge_by_silence(state: State, member: Member) -> None:
    """Treats a member that has not reached this master yet like any silent member."""
    member.heard_at, member.greeted = state.began_now, True
    state.membership.crowd.note(member)
    failure_detector.watch(state, member)


def _clear(state: State, running: set[Generation]) -> None:
    """Stops what runs, because the members agree on no generation."""
    stages.move(state, "no generation adopted")
    state.patient, state.earlier.deferred = True, []
    names = ", ".join(map(str, sorted(running)))
    if running:
        one = f"Generation {names}, which the members run, is not the saved one"
        what = f"Members disagree on the generation ({names})" if len(running) > 1 else one
        text = f"{what}: all ranks are stopped and a new generation forms."
        state.announce("GenerationMismatch", text, warning=True)
    state.message = ""
    if not state.number:  # no generation has ever begun
        state.phase = "pending"
    for member_id in sorted(state.members):
        member = state.members[member_id]
        if member.running != NO_GENERATION:
            lifecycle.stop_member(state, member, member.running, f"Generation {member.running} is not taken over.")
        elif member.finished and not member.is_stranger and member.pod_phase != ENDED_WELL:
            lifecycle.stop_member(
                state, member, member.ordered, f"Generation {member.ordered} ended on {member.id} alone."
            )
        elif member.greeted:
            member.stopped = max(member.stopped, member.ordered)
        readiness.refresh(state, member)


def _saved_world(saved: dict[str, object] | None, state: State) -> World | None:
    if not saved:
        return None
    places = cast("list[Mapping[str, object]]", saved["places"])
    generation = Generation(*cast("tuple[int, int]", tuple(cast("list[int]", saved["generation"]))))
    counts_from = cast(int, saved.get("counts_from", 0))
    return World(
        generation=generation,
        places={MemberId(str(p["member"])): _place(p) for p in places},
        address=str(saved["address"]),
        port=cast(int, saved["port"]),
        version=0,
        world_size=cast(int, saved["world_size"]),
        formed_at=state.now,
        made_step=bool(saved["made_step"]),
        recovered=bool(saved["recovered"]),
        lost_from=state.progress.high_step_at,
        resume=Resume(verdict=UNKNOWN, counts_from=counts_from) if counts_from else Resume(),
    )


def _reported_world(state: State, generation: Generation) -> World:
    """A generation made of the members that report running it, with one rank each.

    That is enough to save its state and to end it.
    """
    members = sorted((m for m in state.members.values() if m.running == generation), key=in_order)
    places = {
        m.id: Place(m.id, m.role, RankIndex(n if m.rank_index is None else m.rank_index), n, n, 1, n, len(members))
        for n, m in enumerate(members)
    }
    return World(
        generation=generation,
        places=places,
        address=members[0].address,
        port=0,
        version=0,
        world_size=len(places),
        formed_at=state.now,
        made_step=True,
    )


def _place(saved: Mapping[str, object]) -> Place:
    number = {k: cast(int, v) for k, v in saved.items() if k not in ("member", "role")}
    return Place(
        MemberId(str(saved["member"])),
        Role(str(saved["role"])),
        RankIndex(number["rank_index"]),
        number["group_rank"],
        number["first_rank"],
        number["nproc"],
        number["role_first_rank"],
        number["role_world_size"],
    )
