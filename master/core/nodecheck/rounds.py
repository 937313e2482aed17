"""Runs the node check: members are measured in pairs before they may train (`pairing` groups and judges them).

The first generation is checked in two rounds. A new member is measured with members that are known to be healthy: idle
ones if there are any, else members that train, which then take part in the all-gather only. If its first round shows no
fault, it is the last one. A round is over when every member has answered or can no longer answer, or when its time
is up. Each failure is a result, and there are at most four rounds, so a check never blocks a job. It waits only for
members that it measures, and costs each of them one order and one answer a round.

A member that fails is excluded and replaced at no cost, on another node if the platform has nodes. These are reported
with a warning instead: more than half of the members that took part (then the check itself is in doubt), a member at a
rank index where three were excluded in a row, and a pod that no controller would create again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from zlib import crc32

from outrider.master.core.faults import delete_pod, node_exclusion
from outrider.master.core.generation import formation, orders, readiness
from outrider.master.core.nodecheck import gate as nodecheck_gate
from outrider.master.core.nodecheck import pairing
from outrider.master.core.nodecheck import report as nodecheck_report
from outrider.master.core.nodecheck.pairing import OK
from outrider.master.core.placement import pod_status
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import GATHERING, RUNNING, State
from outrider.master.core.state.member import ALIVE, SILENT, Member
from outrider.master.core.state.nodecheck import Answer, Check, Finding, Round
from outrider.wire.ids import MemberId, OrderId, RankIndex
from outrider.wire.messages.node_check import Check as CheckOrder
from outrider.wire.messages.node_check import Checked, CheckPeer

PROBE_SECONDS = 30.0
ROUND_SECONDS = 45.0
"""Seconds after which a probe ends, and a round: in between, each sidecar answers whatever the probe did."""
READY_SECONDS = 15.0
"""Seconds between two rounds for a member to report its next port."""
ROUNDS, MOST_ROUNDS = 2, 4
FEW = 3
"""Up to so many members are measured alone as well: pairs of them cannot show which one is bad."""
EXCLUSIONS = 3
"""Members in a row that are excluded at one rank index; after them the check must be wrong, or replacing no help."""
NO_PLACE = RankIndex(-1)
"""Stands for the rank index of spares, which are counted together."""
EXIT_CODE = 3
NO_CONTROLLER = "no controller would create another pod"


# -- begin --------------------------------------------------------------------------------------------------------
def advance(state: State) -> None:
    """Runs at the end of a step: begins a check if one is due, or continues the present one."""
    check = state.nodecheck.check
    if check is None:
        if state.unchecked and state.listed and not state.placement.suspended and _is_time(state):
            _begin(state)
        return
    for member_id in sorted(check.lost):
        check.lost.discard(member_id)
        _take(state, check, member_id, Answer("gone", "the member is gone"))
    if state.nodecheck.check is not check:
        return
    if check.training and state.stage != RUNNING:
        _abandon(state, check, "the generation whose members helped has ended")
    elif not check.orders:
        _next_round(state, check)


def _is_time(state: State) -> bool:
    """Once all of a running generation has started, as it has the helpers; else once only the check delays the next."""
    if state.stage == RUNNING and state.world is not None:
        return len(state.world.started) == len(state.world.places)
    if state.stage != GATHERING:
        return False
    together = len(state.ready) + len(state.unchecked)
    if state.patient:
        return len(state.coming) <= len(state.unchecked) or together >= state.target
    return together >= state.spec.min_members and not formation.can_form(state)


def _begin(state: State) -> None:
    if state.stage == GATHERING:
        for member_id in sorted(m for m in state.ready if not _is_known(state, m)):
            member = state.members[member_id]
            member.check_wanted = "it was never measured with another member"
            readiness.refresh(state, member)
    subjects = set(state.unchecked)
    helpers, training = _helpers(state, len(subjects))
    state.nodecheck.check = Check(subjects, helpers, training)
    _next_round(state, state.nodecheck.check)


def _is_known(state: State, member_id: MemberId) -> bool:
    """Whether a member is known to be healthy: it reached another one when it was measured. A member that passed alone,
    or is one of two that failed together, is not."""
    member = state.members.get(member_id)
    return member is not None and member.finding is not None and member.finding.network > 0


def _known(state: State, check: Check) -> list[MemberId]:
    return [helper for helper in check.helpers if _is_known(state, helper)]


def _helpers(
    state: State, count: int, without: Collection[MemberId] = ()
) -> tuple[list[MemberId], frozenset[MemberId]]:
    """Up to `count` helpers: idle members first, then members that train; `without` these."""
    world = state.world if state.stage == RUNNING else None
    places = world.places if world is not None else {}
    idle = sorted(member for member in state.ready if member not in places and member not in without)[:count]
    free = [m for m in places if world is not None and m not in without and _may_help(state, world, m)]
    training = sorted(free, key=_by_chance(state))[: count - len(idle)]
    return [*idle, *training], frozenset(training)


def _help_more(state: State, check: Check, count: int) -> None:
    """Adds helpers for members that failed with theirs or lost it: only the link between the two may be down."""
    helpers, training = _helpers(state, count, {*check.helpers, *check.subjects})
    check.helpers += helpers
    check.training |= training


def _may_help(state: State, world: World, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    if member is None or not member.is_usable or member.session is None or member.suspicion is not None:
        return False
    return member_id in world.started and member_id not in world.done


def _by_chance(state: State) -> Callable[[MemberId], int]:
    return lambda member: crc32(f"{state.nodecheck.round_number}/{member}".encode())


# -- a round ------------------------------------------------------------------------------------------------------
def _next_round(state: State, check: Check) -> None:
    """Starts the next round, once every member to be measured has a port."""
    subjects = check.subjects = {member for member in check.subjects if not _has_no_trainer(state, member)}
    everyone = [*sorted(subjects - check.mute), *(m for m in check.helpers if m not in check.training)]
    if not subjects:
        _end(state)
        return
    if not all(_is_prepared(state, member) for member in everyone):
        if state.deadlines.at(("check", "")) is None:
            state.deadlines.set(("check", ""), state.now + READY_SECONDS)
        return
    if check.rounds:
        found = pairing.findings(check.rounds, _known(state, check))
        _help_more(state, check, sum(found[m].verdict != OK for m in subjects - check.mute if m in found))
        check.groups = pairing.again(pairing.suspicion(subjects - check.mute, found), check.helpers, check.rounds)
    else:
        check.groups = pairing.first(subjects, check.helpers, f"{state.spec.name}/{state.nodecheck.round_number}")
    check.number, check.began_at, check.answers, check.ports = state.nodecheck.round_number, state.now, {}, {}
    state.nodecheck.round_number += 1
    state.deadlines.set(("check", ""), state.now + ROUND_SECONDS)
    for group in check.groups:
        _measure(state, check, sorted(group, key=lambda member: member in check.training))
    count = sum(map(len, check.groups))
    if state.stage == RUNNING:
        state.message = formation.measured(check)
    state.mark_status()
    check.answers |= {m: Answer("no answer", "it was not ready for this round") for m in check.mute}
    check.groups += tuple((m,) for m in sorted(check.mute))
    if not count:
        _round_over(state, check)


def _has_no_trainer(state: State, member_id: MemberId) -> bool:
    """Whether a member has no trainer now; it is measured when it has one again."""
    member = state.members.get(member_id)
    return member is None or member.trainer_lost or not member.is_usable


def _is_prepared(state: State, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    return member is not None and readiness.can_take_orders(member)


def _measure(state: State, check: Check, group: list[MemberId]) -> None:
    """Orders one group to measure: each member listens for those after it. One that trains is last, without a port."""
    members = [state.members[member] for member in group]
    places: list[CheckPeer] = []
    is_alone = sum(map(len, check.groups)) <= FEW
    for index, member in enumerate(members):
        port = 0 if member.id in check.training or member.ready is None else member.ready.port
        awaited = tuple(each.id for each in members[index + 1 :])
        _order(state, check, member, port, tuple(places), awaited, is_alone)
        places.append(CheckPeer(member.id, member.address, port))
    for member in members:
        if member.id not in check.training:
            member.ready = None
            readiness.refresh(state, member)


def _order(
    state: State, check: Check, member: Member, port: int, peers: tuple[CheckPeer, ...], awaited: tuple[MemberId, ...],
    is_alone: bool,
) -> None:  # fmt: skip
    trains = member.id in check.training
    others = ", ".join([*(peer.member for peer in peers), *awaited])
    reason = f"Check round {check.number} measures {member.id} {f'with {others}' if others else 'alone'}."

    def make(order: OrderId) -> CheckOrder:
        return CheckOrder(
            order=order,
            round=check.number,
            port=port,
            peers=peers,
            awaited=awaited,
            compute=not trains,
            alone=is_alone and not trains,
            address=member.address,
            seconds=PROBE_SECONDS,
        )

    check.ports[member.id] = port
    check.orders[member.id] = orders.give(state, member, make, reason)


def answered(state: State, member: Member, message: Checked) -> None:
    """Takes the result of a member's probe."""
    orders.acknowledge(state, member, message.order)
    check = state.nodecheck.check
    if check is None or check.orders.get(member.id) != message.order:
        return
    if member.ready is not None and member.ready.port == check.ports[member.id]:
        member.ready = None  # sent before the member knew of the check, which uses this port
        readiness.refresh(state, member)
    is_contained = bool(member.node) or state.spec.is_isolated
    answer = pairing.answer_of(message, _shares_its_machine(state, member), is_contained, state.now)
    _take(state, check, member.id, answer)
    readiness.stir(state)


def _shares_its_machine(state: State, member: Member) -> bool:
    """Whether other members are on the same machine and so disturb the measurement. If no node is known, all members
    are on one machine; a machine may also hold several nodes."""
    others = (m for m in state.members.values() if m.id != member.id and m.life in (ALIVE, SILENT))
    same = (m.node == member.node or (m.machine and m.machine == member.machine) for m in others)
    return not member.node or any(same)


def _take(state: State, check: Check, member_id: MemberId, answer: Answer) -> None:
    number = check.orders.pop(member_id, None)
    member = state.members.get(member_id)
    if number is not None:
        check.answers[member_id] = answer
        if member is not None:
            orders.acknowledge(state, member, number)
    if answer.result == "gone":
        check.subjects.discard(member_id)
        check.helpers = [helper for helper in check.helpers if helper != member_id]
    if number is not None and not check.orders:
        _round_over(state, check)


def overdue(state: State) -> None:
    """The time of a round, or of the wait for ports before it, is up."""
    check = state.nodecheck.check
    if check is None:
        return
    if check.orders:
        for member_id in sorted(check.orders):
            _take(state, check, member_id, Answer("no answer", elapsed=state.now - check.began_at))
        return
    check.helpers = [m for m in check.helpers if m in check.training or _is_prepared(state, m)]
    check.mute = {m for m in check.subjects if not _is_prepared(state, m)}
    for member_id in sorted(check.mute):
        state.deadlines.set(("patience", member_id), state.now)
    readiness.stir(state)


def resumed(state: State) -> None:
    """The Lease is held again: without it no member could be asked, so the time of the round starts again."""
    check = state.nodecheck.check
    if check is not None and check.orders:
        state.deadlines.set(("check", ""), state.now + ROUND_SECONDS)


def _round_over(state: State, check: Check) -> None:
    state.deadlines.cancel(("check", ""))
    check.rounds.append(Round(check.number, check.groups, check.answers))
    found = pairing.findings(check.rounds, _known(state, check))
    slow = _stragglers(state, check, found)
    nodecheck_report.announce(state, check.rounds[-1], state.now - check.began_at, slow)
    if _is_enough(state, check, found, slow):
        _conclude(state, check, found, slow)
    readiness.stir(state)


def _is_enough(state: State, check: Check, found: dict[MemberId, Finding], slow: dict[MemberId, Finding]) -> bool:
    made = len(check.rounds)
    suspects = [m for m in check.subjects if m in slow or found[m].verdict != OK]
    if made < ROUNDS:
        has_company = len(check.subjects) > 1 and not check.helpers
        return not suspects and not has_company
    unsure = [m for m in check.subjects if found[m].verdict not in (OK, "faulty")]
    everyone = {m for each in check.rounds for group in each.groups for m in group}
    can_learn = any(len(everyone) - 1 > len(_met(check, m)) for m in unsure)
    can_learn = can_learn or (bool(unsure) and bool(_helpers(state, 1, everyone | check.subjects)[0]))
    return made >= MOST_ROUNDS or not can_learn


def _met(check: Check, member: MemberId) -> set[MemberId]:
    return {m for each in check.rounds for group in each.groups if member in group for m in group} - {member}


def _stragglers(state: State, check: Check, found: dict[MemberId, Finding]) -> dict[MemberId, Finding]:
    """The stragglers. An all-gather with a member that trains is slowed by its training, so its time does not count."""
    known = {m.id: m.finding for m in state.members.values() if m.finding is not None and m.id not in check.subjects}
    if check.training:
        found = {m: Finding(f.verdict, f.check, f.reason, f.kind, f.compute) for m, f in found.items()}
    return pairing.stragglers(check.subjects, found, known)


# -- the end ------------------------------------------------------------------------------------------------------
def _conclude(state: State, check: Check, found: dict[MemberId, Finding], slow: dict[MemberId, Finding]) -> None:
    took_part = {m for group in check.groups for m in group}
    faulty = [m for m in sorted(check.subjects) if found[m].verdict == "faulty"]
    in_doubt = 2 * len(faulty) > len(took_part)
    if in_doubt:
        failed = f"{len(faulty)} of {len(took_part)} members failed the node check, for example {faulty[0]}"
        text = f"{failed} ({found[faulty[0]].reason}). No member is excluded, because more than half have failed."
        state.announce("NodeCheckInconclusive", text, warning=True)
    nodecheck_report.note_verdicts(state, check.rounds[-1], found, slow)
    _end(state)
    for member_id in sorted(check.subjects):
        member, finding = state.members.get(member_id), found[member_id]
        if member is None or member.life != ALIVE:
            continue
        if finding.verdict == "faulty" and not in_doubt and _exclude(state, member, "failed", finding):
            continue
        too_slow = slow.get(member_id) if state.spec.exclude_stragglers else None
        if too_slow is not None and _exclude(state, member, "is too slow for", too_slow):
            continue
        _pass(state, member, finding, slow.get(member_id), in_doubt)
    for helper in sorted(set(check.helpers) & set(found)):
        _look_at_helper(state, check, helper, found[helper])


def _look_at_helper(state: State, check: Check, member_id: MemberId, finding: Finding) -> None:
    """Checks a helper that reached no member, if a third one can: two members would check each other for ever."""
    member = state.members.get(member_id)
    others, _ = _helpers(state, 1, {member_id, *_met(check, member_id)})
    if member is not None and others and finding.check == "network" and finding.verdict in ("faulty", "unclear"):
        nodecheck_gate.ask(state, member, f"as a helper it reached none of the measured members ({finding.reason})")


def _exclude(state: State, member: Member, what: str, finding: Finding) -> bool:
    """Excludes a member. False if it stays, which is announced."""
    last_words = f"{member.id} {what} the node check: {finding.check}: {finding.reason}"
    index = NO_PLACE if member.rank_index is None else member.rank_index
    times = state.nodecheck.exclusions.get(index, 0)
    if not member.has_controller or times >= EXCLUSIONS:
        place = "as spares" if member.rank_index is None else f"at rank index {index}"
        why = f"{times} members before it were excluded {place}" if member.has_controller else NO_CONTROLLER
        state.announce("ExclusionSkipped", f"{last_words}. It is not excluded: {why}.", member.id, warning=True)
        return False
    state.nodecheck.exclusions[index] = times + 1
    reason = f"{last_words}. It is excluded and replaced."
    node_exclusion.condemn(state, member.node, last_words)
    if state.spec.is_adopted:
        state.announce("MemberExcluded", reason, member.id, warning=True)
        delete_pod.dismiss(state, member, reason)
    else:
        pod_status.exclude(state, member, reason, EXIT_CODE, last_words)
    return True


def _pass(state: State, member: Member, finding: Finding, slow: Finding | None, in_doubt: bool) -> None:
    member.check_wanted = ""
    member.finding = finding if finding.verdict == OK else None
    if slow is None and finding.verdict == OK:
        state.nodecheck.exclusions.pop(NO_PLACE if member.rank_index is None else member.rank_index, None)
    if slow is not None and not state.spec.exclude_stragglers:
        what = f"{slow.check}: {slow.reason}. It trains, because stragglers are not excluded."
        text = f"{member.id} is a straggler: {what}"
        state.announce("NodeCheckStraggler", text, member.id, warning=True)
    elif finding.verdict == "unclear" or (finding.verdict == "faulty" and in_doubt):
        what = f"{finding.check}: {finding.reason}. It trains."
        text = f"{member.id} failed the node check, but it may not be the cause: {what}"
        state.announce("NodeCheckInconclusive", text, member.id, warning=True)
    readiness.refresh(state, member)


def _end(state: State) -> None:
    state.nodecheck.check = None
    state.deadlines.cancel(("check", ""))
    readiness.stir(state)
    state.mark_status()


def _abandon(state: State, check: Check, why: str) -> None:
    """Ends the check without a result; its members are measured later."""
    for member_id, number in sorted(check.orders.items()):
        member = state.members.get(member_id)
        if member is not None:
            orders.acknowledge(state, member, number)
    text = f"Check round {check.number} is aborted: {why}. Its members are checked again later."
    state.announce("NodeCheckAborted", text)
    _end(state)
