"""Reports links that are down or slow, and replaces a member if a broken link blocks training.

If two members cannot reach each other, the collectives between them hang or fail. That alone has no consequence: a ring
of ranks may not use that link, and a short outage costs nothing. If training has stood still since then (no step for
ten seconds and ten times the slowest recent step; a hang; or ranks that end with nothing but errors of
torch.distributed), a restart in place would fail again and again, so one of the two is replaced: the one with more
broken links, of equals the younger. It costs no restart. A rank index is replaced for this reason once an hour. Then
the other one of the pair is replaced, and then none: a link that drops probes may not be what blocks the script. If so
many members would have to go that the network itself must be the cause, none is replaced either.

Members probe three neighbours only. If ranks end in this way or hang, the master has more pairs probed: all pairs of a
small generation; in a large one each member with the next, and with one at a distance that changes with each
generation; and the member that failed first with 64 others. O(members).
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.master.core.faults import delete_pod, recovery
from outrider.master.core.faults.node_exclusion import PARTED
from outrider.master.core.generation import orders
from outrider.master.core.network import link_health
from outrider.master.core.network.report import cut_sentence, slow_sentence, where
from outrider.master.core.placement import replicas
from outrider.master.core.state import links as state_links
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import REBUILDING, RUNNING, State
from outrider.master.core.state.links import Cut, Pair, Slow
from outrider.master.core.state.member import ALIVE, Member
from outrider.master.core.state.occurrences import MembersCutOff
from outrider.wire.ids import MemberId
from outrider.wire.messages.links import Probe, Probed
from outrider.wire.messages.report import Report

LOOK_EVERY, LOOK_FOR_SLOW = 1.0, 10.0
HEARD, REPORTED = 2.5, 1.5
"""Seconds since the last message of both members of a pair: at most, for a verdict, and at most, before the master asks
them to probe, because a member that is silent for longer may soon be suspected."""
SLACK = 5.0
"""Seconds, in addition to two steps, in which a last step may still complete after a link broke: its data is in the
kernel's buffers, and neither a probe nor a report shows the break at once."""
AGAIN = 3600.0
"""Seconds before a rank index is replaced for a partition again."""
ALL_PAIRS = 16
"""Number of members up to which all pairs are probed."""
OTHERS = 64
"""Members that the first failed one probes in a larger generation."""
PROBE_SECONDS = 0.4
ASK_AGAIN = 1.5


# -- reports of members -------------------------------------------------------------------------------------------
def note_report(state: State, member: Member, report: Report) -> None:
    """Notes the links of a report. O(the links in it)."""
    world = state.world
    if not report.links or world is None or member.id not in world.places:
        return
    links = [each for each in report.links if each.member in world.places and each.member != member.id]
    if link_health.note(state.links, member.id, links, state.now):
        state.deadlines.set(("links", ""), state.now + LOOK_EVERY)
    elif state.deadlines.at(("links", "")) is None:
        state.deadlines.set(("links", ""), state.now + LOOK_FOR_SLOW)


def probed(state: State, member: Member, answer: Probed) -> None:
    """Notes the answer to a probe that the master requested."""
    pair = state.links.asked.pop(answer.order, None)
    if pair is None or pair[0] != member.id or pair[1] not in state.members:
        return
    if link_health.probed(state.links, *pair, answer.reachable, PROBE_SECONDS, state.now):
        state.deadlines.set(("links", ""), state.now + LOOK_EVERY)


# -- probes -------------------------------------------------------------------------------------------------------
def ask(state: State, suspects: Iterable[MemberId], *, is_sudden: bool) -> None:
    """Requests probes of links that no member probes otherwise; of all links if the failure is sudden."""
    world = state.world
    if world is None or len(world.order) < 2:
        return
    state.links.asked_at = state.now
    for one, other in _questions(world, list(suspects)):
        if is_sudden or not link_health.is_fresh(state.links, one, other, state.now):
            _ask(state, one, other)


def _questions(world: World, suspects: list[MemberId]) -> list[Pair]:
    order = world.order
    if len(order) <= ALL_PAIRS:
        return [(one, other) for index, one in enumerate(order) for other in order[index + 1 :]]
    size, stride = len(order), 2 + world.generation.number % (len(order) - 3)
    ring = [(one, order[(index + step) % size]) for index, one in enumerate(order) for step in (1, stride)]
    return ring + [(one, other) for one in suspects for other in order[:OTHERS] if other != one]


def _ask(state: State, one: MemberId, other: MemberId) -> None:
    asker, target = state.members.get(one), state.members.get(other)
    if asker is None or target is None or not target.probe_port:
        return
    if not _is_heard(state, asker, REPORTED) or not _is_heard(state, target, REPORTED):
        return
    if (one, other) in state.links.asked.values():
        return
    address, port = target.address, target.probe_port
    reason = f"The master asks {one} to probe {other}: their link may be down."
    number = orders.give(state, asker, lambda order: Probe(order, other, address, port, PROBE_SECONDS), reason)
    state.links.asked[number] = (one, other)


def _ask_about_the_missing(state: State) -> None:
    """Requests probes in both directions of each missing link, often until it is known whether it is down, then rarely:
    not all members with a missing link probe each other by themselves."""
    for one, other in sorted(state.links.missing)[:OTHERS]:
        noted_at = state.links.rows[one][other].noted_at
        pause = ASK_AGAIN if state.now - noted_at < state_links.UNDECIDED else link_health.FRESH / 2
        for pair in ((one, other), (other, one)):
            row = state.links.rows.get(pair[0], {}).get(pair[1])
            if row is None or state.now - row.at >= pause:
                _ask(state, *pair)


def is_undecided(state: State) -> bool:
    """Whether it will be known only in some seconds if two members cannot reach each other."""
    return state_links.is_undecided(state.links, state.now)


def ended(state: State, member: Member) -> None:
    """Ranks of a member have ended. If only errors of torch.distributed are known, the links are probed."""
    incident = state.faults.incident
    if incident is not None and recovery.is_torn(state) and incident.failures[0].member == member.id:
        ask(state, [member.id], is_sudden=True)


# -- checks -------------------------------------------------------------------------------------------------------
def look(state: State) -> None:
    """Checks the links each second while one is missing, otherwise every ten seconds while links are reported."""
    known = state.links
    if state.is_over or state.world is None:
        return
    if known.rows.keys() - state.members.keys():
        link_health.forget(known, state.members)
    _ask_about_the_missing(state)
    if state.stage != REBUILDING:
        found = _cuts(state)
        _report(state, found)
        _act(state, [cut for cut in found if cut.is_both])
    if state.now >= known.slow_at:
        known.slow_at = state.now + LOOK_FOR_SLOW
        _report_slow(state, link_health.look_for_slow(known, state.now))
    if known.rows:
        wait = LOOK_EVERY if known.missing else LOOK_FOR_SLOW
        state.deadlines.set(("links", ""), state.now + wait)


def _cuts(state: State) -> list[Cut]:
    concerned = {m for pair in state.links.missing for m in pair}
    heard = {m for m in concerned if (member := state.members.get(m)) is not None and _is_heard(state, member)}
    size = len(state.world.places) if state.world is not None else len(state.members)
    return link_health.cuts(state.links, heard, size, state.now)


def _is_heard(state: State, member: Member, within: float = HEARD) -> bool:
    is_well = member.life == ALIVE and member.session is not None and member.suspicion is None and not member.deleting
    return is_well and state.now - member.heard_at < within


# -- Events -------------------------------------------------------------------------------------------------------
def _report(state: State, found: list[Cut]) -> None:
    reported = state.links.reported
    for cut in found:
        if cut.pair not in reported or cut.is_both != reported[cut.pair].is_both:
            state.announce("LinkDown", f"{cut_sentence(state, cut)}.", cut.first, warning=True,
                           detail=(("first", cut.first), ("second", cut.second)))  # fmt: skip
            state.mark_status()
        reported[cut.pair] = cut
    for pair in reported.keys() - {cut.pair for cut in found}:
        if not any(each in state.links.missing for each in (pair, pair[::-1])):
            del reported[pair]
            state.mark_status()
            if all(member in state.members for member in pair):
                text = f"{where(state, pair[0])} and {where(state, pair[1])} reach each other again."
                state.announce("LinkUp", text, pair[0])


def _report_slow(state: State, found: list[Slow]) -> None:
    reported = state.links.slow
    for slow in found:
        if slow.members not in reported:
            state.announce("LinkSlow", f"{slow_sentence(state, slow)}.", slow.members[0], warning=True)
            state.mark_status()
    for members in reported.keys() - {slow.members for slow in found}:
        state.mark_status()
        if all(member in state.members for member in members):
            names = " and ".join(members)
            state.announce("LinkRecovered", f"The slow or lossy links of {names} have recovered.", members[0])
    state.links.slow = {slow.members: slow for slow in found}


# -- consequences -------------------------------------------------------------------------------------------------
def _act(state: State, found: list[Cut]) -> None:
    if not found or state.world is None:
        return
    if recovery.is_torn(state):
        resolve(state, at_fault(state, found), "Ranks ended only with errors of torch.distributed")
    elif state.stage == RUNNING:
        state.occur(MembersCutOff(tuple(found)))


def slowest_step(state: State) -> float:
    """Seconds of the slowest recent step; 0 if none was slow."""
    recent = state.hangs.pace.slow_steps
    return recent[0][1] if recent else 0.0


def of_a_hang(state: State) -> list[Cut]:
    """Pairs that cannot reach each other, which may be why no step is made."""
    return at_fault(state, [cut for cut in _cuts(state) if cut.is_both])


def at_fault(state: State, found: list[Cut]) -> list[Cut]:
    """Pairs of this generation whose link broke about when steps stopped: else training does not need it."""
    world, watch = state.world, state.hangs.watch
    if world is None or watch is None:
        return []
    slack = SLACK + 2 * slowest_step(state)
    is_late = watch.generation == world.generation and watch.step > 0
    return [cut for cut in found if cut.first in world.places and cut.second in world.places
            and not (is_late and watch.stepped_at > cut.since + slack)]  # fmt: skip


def resolve(state: State, found: list[Cut], what: str) -> bool:
    """Replaces as few members as possible so that the others reach each other. False if no member may be replaced."""
    world = state.world
    if world is None or not found:
        return False
    concerned = {m for cut in found for m in cut.pair}
    age = {m: state.members[m].created_at for m in concerned}
    spared = {m for m in concerned if not _may_go(state, state.members[m])}
    gone = link_health.to_replace(found, age, spared, max(1, len(world.places) // 4))
    for member_id in gone:
        member = state.members[member_id]
        cut = next(cut for cut in found if member_id in cut.pair)
        reason = f"{what}, and {cut_sentence(state, cut)}; {member_id} is replaced."
        if member.rank_index is not None:
            state.parted[member.rank_index] = state.now
        recovery.partitioned(state, PARTED, reason, member)
        delete_pod.dismiss(state, member, reason)
    return bool(gone)


def _may_go(state: State, member: Member) -> bool:
    world, index = state.world, member.rank_index
    if member.uid is None or not member.has_controller or index is None:
        return False
    if state.now - state.parted.get(index, float("-inf")) < AGAIN:
        return False
    is_enough = world is not None and len(world.places) > state.spec.min_members
    return state.spec.is_adopted or is_enough or replicas.may_replace(state, member)
