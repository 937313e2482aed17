"""Fills vacant rank indexes with spares and new pods, and keeps the desired number of spares.

Each desired rank index has a living member. If that member is lost, or not ready for longer than a first generation
waits, a ready spare takes its rank index at once. Without a spare, a new pod replaces a lost member, with the next id
and the same rank index. For a suspected, silent or leaving member the replacement is created without a rank index: it
gets one only when it is ready and the other member has not come back, else it stays as a spare. A new pod uses the
relaunch budget, unless its rank index has never had a member.

A job that became smaller keeps its running members: one whose rank index is beyond the new size takes over an index
whose member is lost or has not started yet, and the pod that has not started is the one too many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import PodSeen
from outrider.master.core.faults import node_exclusion, oom
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import observe_only, readiness
from outrider.master.core.membership import failure_detector
from outrider.master.core.placement import own_rank_index
from outrider.master.core.placement import rank_index as placement_rank_index
from outrider.master.core.spec import MASTER
from outrider.master.core.state import budgets
from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import ALIVE, SILENT, Member, Placed
from outrider.master.core.state.occurrences import MemberAdded
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId, RankIndex, Role

CREATE_AGAIN = 1.0
CREATE_SLOWEST = 30.0
NAMED = 8
LATE = 1.0
"""Seconds that a deadline is overdue from which this process counts as paused: waiting events are read first."""


def staff(state: State) -> None:
    """Fills vacant rank indexes; O(members), called only when a member came, went, or is suspected."""
    if (
        not state.listed
        or state.ends
        or state.placement.suspended
        or state.placement.waits_behind
        or state.stage == "rebuilding"
    ):
        return
    if state.deadlines.is_late(state.now - LATE):  # suspicions may stem from a pause: first read what has arrived
        readiness.note_staffing(state)
        return
    node_exclusion.look(state)
    own_rank_index.settle(state)
    found = _survey(state)
    _promote_spares(state, found)
    displaced = _move_surplus(state, found)
    _make_pods(state, found, displaced)
    _give_up_if_hopeless(state)


@dataclass(slots=True)
class _Places:
    """Which member has which rank index, and which rank indexes are vacant or have no reliable member."""

    holders: dict[RankIndex, Member]
    given: list[tuple[RankIndex, Member]]
    """Assigned rank indexes, without those that pods name themselves."""
    empty: dict[RankIndex, None]
    shaky: dict[RankIndex, None]
    """Rank indexes whose members are not usable."""
    doubted: list[RankIndex]
    late: set[RankIndex]
    spares: dict[MemberId, Member]

    def fill(self, hole: RankIndex) -> None:
        (self.empty if hole in self.empty else self.shaky).pop(hole)


def _survey(state: State) -> _Places:
    by_age = sorted(state.members.values(), key=placement_rank_index.age)
    holders = {m.rank_index: m for m in by_age if m.rank_index is not None}
    given = [(r, m) for r, m in sorted(holders.items()) if m.own_index is None]
    desired = [(r, m) for r, m in given if r in state.indexes]
    return _Places(
        holders=holders,
        given=given,
        empty=dict.fromkeys(r for r in map(RankIndex, state.indexes) if r not in holders),
        shaky=dict.fromkeys(r for r, m in desired if not m.is_usable),
        doubted=[r for r, m in desired if m.is_usable and m.suspicion is not None],
        late={r for r, m in desired if _is_late(m)},
        spares={m.id: m for m in by_age if own_rank_index.is_spare(m) and m.is_usable},
    )


def _promote_spares(state: State, found: _Places) -> None:
    """Assigns ready spares to vacant rank indexes, or to those of late members, which become spares instead."""
    holders, standing_by = found.holders, _StandingBy(found.spares.values())
    for hole in [*found.empty, *found.shaky, *sorted(found.late)]:
        if not _stays(state, holders.get(hole)) and (spare := standing_by.take(state.spec.role_of(hole))) is not None:
            del found.spares[spare.id]
            placement_rank_index.promote(state, spare, hole, holders.get(hole))
            if hole in found.late:
                found.spares[holders[hole].id] = holders[hole]
            else:
                found.fill(hole)


def _move_surplus(state: State, found: _Places) -> list[Member]:
    """Moves members beyond the desired size to vacant rank indexes or those of members that have not started.

    Returns the latter members."""
    holders = found.holders
    kept = [(r, m) for r, m in found.given if m.rank_index == r]
    surplus = [m for r, m in kept if r not in state.indexes and _is_well(m)]
    to_come = {r for r, m in kept if r in state.indexes and m.is_usable and not (m.greeted or m.is_stranger)}
    of_workers = [r for r in [*found.empty, *found.shaky, *sorted(to_come)] if state.spec.role_of(r) == state.spec.role]
    moves = list(zip(of_workers, surplus, strict=False))
    displaced = [holders[hole] for hole, _ in moves if hole in to_come]
    for hole, member in moves:
        placement_rank_index.promote(state, member, hole, holders.get(hole))
        if hole in to_come:
            found.spares[holders[hole].id] = holders[hole]
        else:
            found.fill(hole)
    return displaced


def _make_pods(state: State, found: _Places, displaced: list[Member]) -> None:
    """Creates pods for vacant rank indexes and spares for suspected members; displaced members may be too many."""
    desired = max(state.spec.spares, len(found.doubted)) + len(found.shaky)
    have = len(found.spares)
    state.placement.told_empty.intersection_update(found.empty)
    for hole in found.empty:
        if have > desired:
            have -= 1
        elif not _create(state, hole, ""):
            _announce_vacant(state, hole)
    for member in displaced[: max(0, have - desired)]:
        member.leaving = f"the job has only {counted(state.target, 'member')} now"
    in_doubt = {*found.shaky, *found.doubted}
    in_case = _in_case(state, in_doubt) if have < desired else ""
    while have < desired and _create(state, None, _why_spare(state, in_case, have), in_doubt):
        have += 1


class _StandingBy:
    """Spares that can start now, by role, the oldest first: `take` is O(roles), because half of a large job may be
    suspected, and each suspected member has a spare."""

    def __init__(self, spares: Iterable[Member]) -> None:
        self._by_role: dict[Role, deque[Member]] = {}
        for member in filter(readiness.can_start, spares):
            self._by_role.setdefault(member.role, deque()).append(member)

    def take(self, role: Role) -> Member | None:
        """The oldest spare of this role, else the oldest of all; None without a spare."""
        if not self._by_role:
            return None
        queue = self._by_role.get(role) or min(filter(None, self._by_role.values()), key=_age_of_first, default=None)
        return queue.popleft() if queue else None


def _age_of_first(queue: deque[Member]) -> tuple[float, int, str]:
    return placement_rank_index.age(queue[0])


def _stays(state: State, holder: Member | None) -> bool:
    """Whether the member keeps its rank index until a checkpoint is finished, although its replacement is ready."""
    return holder is not None and holder.stays_until_saved and state.stage == RUNNING


def _announce_vacant(state: State, hole: RankIndex) -> None:
    """Once for each rank index: why the job continues with fewer members."""
    if hole in state.placement.told_empty or state.spec.is_adopted or state.placement.closed:
        return
    state.placement.told_empty.add(hole)
    most, failed = state.spec.max_relaunches, state.spec.limits_of(state.spec.role_of(hole)).relaunch_limit
    why = f"--max-relaunches {most} allows no further replacements"
    if most is None:
        why = f"its pods have failed as often as restartLimit ({failed}) allows"
    state.announce("ReplacementLimitReached", f"Rank index {hole} stays vacant: {why}.", warning=True)


def _is_late(member: Member) -> bool:
    """Whether the job no longer waits for this member: its time to become ready is over."""
    return member.is_usable and member.overdue and member.suspicion is None and not member.is_stranger


def _is_well(member: Member) -> bool:
    return member.is_usable and member.session is not None and member.suspicion is None and not member.trainer_lost


def _in_case(state: State, in_doubt: Collection[RankIndex]) -> str:
    """Why spares are created: members that have to leave, or may not come back."""
    holders = [m for _id, m in sorted(state.members.items()) if m.rank_index in in_doubt]
    going = [m.id for m in holders if m.leaving or m.deleting or m.pod_phase == "terminating"]
    is_going = set(going)
    silent = [m.id for m in holders if m.id not in is_going]
    reasons = [f"{_named(going, 'and')} {'has' if len(going) == 1 else 'have'} to leave"] if going else []
    reasons += [f"{_named(silent, 'or')} may not come back"] if silent else []
    return ", and ".join(reasons)


def _named(members: list[MemberId], word: str) -> str:
    """At most `NAMED` ids, because the reason of each of as many spares has this list."""
    others = [f"{len(members) - NAMED} others"] if len(members) > NAMED else []
    return f" {word} ".join([*members[:NAMED], *others])


def _why_spare(state: State, in_case: str, have: int) -> str:
    if have < state.spec.spares:
        return f"{counted(state.spec.spares, 'spare')} requested"
    return in_case or f"{counted(have + 1, 'spare')} requested"


def _role_of_new(state: State, rank_index: RankIndex | None, in_doubt: Collection[RankIndex]) -> Role:
    """The role of a new pod: a replacement for a suspected pod of role master is one too, as its template may need."""
    spec = state.spec
    if not (spec.has_master and rank_index is None and 0 in in_doubt):
        return spec.role_of(rank_index)
    has_one = any(m.role == MASTER and own_rank_index.is_spare(m) and m.is_usable for m in state.members.values())
    return spec.role_of(rank_index) if has_one else MASTER


def _create(
    state: State, rank_index: RankIndex | None, why: str, in_doubt: Collection[RankIndex] = frozenset()
) -> bool:
    if state.spec.is_adopted or state.placement.closed or not _may_create(state, rank_index):
        return False
    if (state.number or not _is_first(state, rank_index)) and _would_create(state, rank_index, why):
        return True
    role = _role_of_new(state, rank_index, in_doubt)
    number = state.placement.next_id.get(role, 0)
    state.placement.next_id[role] = number + 1
    member = Member(MemberId(f"{role}-{number}"), role, rank_index, state.now)
    member.create_asked_at = state.now
    state.occur(MemberAdded(member.id))
    placement_rank_index.add(state, member)
    state.deadlines.set(("patience", member.id), state.now + state.spec.ready_patience)
    is_first = _count_creation(state, rank_index)
    what = f"with rank index {rank_index}" if rank_index is not None else f"as a spare: {why}"
    reason = f"{member.id} is created {what}."
    kind = "MemberCreated" if is_first else "ReplacementCreated"
    state.announce(kind, reason, member.id)
    _request_pod(state, member, reason)
    readiness.refresh(state, member)
    state.mark_status()  # its id is used up: the next master must know
    return True


def _would_create(state: State, rank_index: RankIndex | None, why: str) -> bool:
    """Only announces the pod in a dry run, which creates the members of its first generation and no others."""
    what = f"create a member for rank index {rank_index}" if rank_index is not None else "create a spare"
    return observe_only.would(state, what, f"{why or 'the rank index is vacant'}.")


def _request_pod(state: State, member: Member, reason: str) -> None:
    """Decides here how the pod differs from its template, or from the pod before it."""
    index, member.avoid, member.resources = member.rank_index, state.exclusion.avoiding, state.spec.resources
    state.act(
        CreatePod(
            member.id,
            member.role,
            index,
            state.generation,
            reason,
            wanted=state.target,
            relaunches=state.placement.failures.get(placement_rank_index.key(index), 0),
            memory_limit=oom.needed(state, index),
            avoid=member.avoid,
            resources=member.resources,
        )
    )


def _is_first(state: State, rank_index: RankIndex | None) -> bool:
    if rank_index is not None:
        return rank_index not in state.placement.held
    return state.placement.spares_made < state.spec.spares


def _count_creation(state: State, rank_index: RankIndex | None) -> bool:
    is_first = _is_first(state, rank_index)
    if not is_first:
        state.placement.relaunches += 1
    if rank_index is not None:
        state.placement.held.add(rank_index)
    else:
        state.placement.spares_made += 1
    return is_first


def _may_create(state: State, rank_index: RankIndex | None) -> bool:
    if _is_first(state, rank_index):
        return True
    limit = state.spec.max_relaunches
    if limit is not None:
        return state.placement.relaunches < limit
    failures = state.placement.failed_relaunches.get(placement_rank_index.key(rank_index))
    spec, allowed = state.spec, state.spec.limits_of(state.spec.role_of(rank_index)).relaunch_limit
    return failures is None or budgets.left(failures, allowed, spec.restart_decay, state.now) >= 0


def may_replace(state: State, member: Member) -> bool:
    """Whether a spare exists or a new pod may be created."""
    spare = any(m.rank_index is None and m.is_usable and m.greeted for m in state.members.values())
    return spare or _may_create(state, member.rank_index)


def count_failure(state: State, member: Member) -> None:
    """Charges the replacement of a pod that failed by itself to the relaunch budget."""
    key = placement_rank_index.key(member.rank_index)
    state.placement.failures[key] = state.placement.failures.get(key, 0) + 1
    budget = state.placement.failed_relaunches.setdefault(key, Budget(since=state.now))
    budgets.use(budget, state.spec.restart_decay, state.now)


def _give_up_if_hopeless(state: State) -> None:
    """Fails the job if fewer members are left than a generation needs, and none may be created."""
    if state.spec.is_adopted:
        return  # its owner creates another one, or reports that it gives up
    living = [m for m in state.members.values() if not m.deleting and not m.leaving and m.life in (ALIVE, SILENT)]
    least = state.spec.min_members
    if len(living) >= least or state.target < least:
        return
    assigned = {m.rank_index for m in living}
    missing = [r for r in map(RankIndex, state.indexes) if r not in assigned]
    if any(_may_create(state, r) for r in missing):
        return
    last = state.faults.noted[-1].reason if state.faults.noted else "Members are missing."
    generation_job_end.fail(
        state,
        1,
        f"{last} A generation needs at least {counted(least, 'member')}, but only {len(living)} can take part, "
        "and no replacement is allowed.",
    )


def adopt(state: State, pod: PodSeen) -> Member:
    """Adds the member of a pod that this master did not create: an earlier master or another controller did."""
    number = pod.member.rpartition("-")[2]
    if number.isdigit():
        state.placement.next_id[pod.role] = max(state.placement.next_id.get(pod.role, 0), int(number) + 1)
    known = state.earlier.placed.get(pod.member)
    if known is None or known.uid != pod.uid:
        known = Placed(pod.uid, pod.rank_index, pod.rank_index if state.spec.is_adopted else None)
    rank_index = None if known.rank_index in state.placement.holders else known.rank_index
    member = Member(pod.member, pod.role, rank_index, state.now, known.own_index, pod.uid)
    state.occur(MemberAdded(member.id))
    uid, address, port = state.earlier.addresses.get(pod.member, (None, "", 0))
    if uid == pod.uid:
        member.address, member.probe_port = address, port
    placement_rank_index.add(state, member)
    failure_detector.remember(state, member)
    if rank_index != pod.rank_index:
        placement_rank_index.show(state, member, f"The rank index of {member.id} differs from its pod's label.")
        own_rank_index.came(state, member)
    if rank_index is not None:
        state.placement.held.add(rank_index)
    else:
        state.placement.spares_made += 1
    state.deadlines.set(("patience", member.id), state.now + state.spec.ready_patience)
    return member


def creation_failed(state: State, action: CreatePod, error: str) -> None:
    """Schedules another request for a pod that the platform did not create, with growing delays."""
    member = state.members.get(action.member)
    if member is None or member.uid is not None:
        return
    member.create_failures += 1
    delay = min(CREATE_AGAIN * 2 ** (member.create_failures - 1), CREATE_SLOWEST)
    text = f"{member.id} could not be created: {error}. The master retries in {delay:.0f} s."
    state.announce("CreateFailed", text, member.id, warning=True)
    state.deadlines.set(("create", member.id), state.now + delay)


def not_shown(state: State, member: Member) -> None:
    """A list lacks the pod: the list is older than the request, or the request was lost."""
    if state.now - member.create_asked_at >= CREATE_AGAIN:
        create_again(state, member)
    elif state.deadlines.at(("create", member.id)) is None:
        state.deadlines.set(("create", member.id), member.create_asked_at + CREATE_AGAIN)


def create_again(state: State, member: Member) -> None:
    if state.placement.closed or state.placement.waits_behind or state.ends:
        return
    member.create_asked_at = state.now
    _request_pod(state, member, f"{member.id} is requested again: the platform has not shown its pod.")


def create_due(state: State, member_id: str) -> None:
    member = state.members.get(MemberId(member_id))
    if member is not None and member.uid is None:
        create_again(state, member)
