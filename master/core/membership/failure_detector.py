"""Members that are not heard: doubt, witnesses, verdict.

A report that does not come proves nothing: the master, the network or the machine may be slow. So at 0.6 of
`silent_after` the member is in doubt: healthy peers are asked to reach its sidecar, and a replacement is started early,
which stays as a spare if it was not needed. At `silent_after` a second witness decides:

* a peer reaches it: it is left alone, and the user is told that only the master does not hear it;
* enough peers do not: it is left out of the next generation. That is reversible, its next word brings it back;
* its node is not Ready: so it is left out too, unless a peer reaches it;
* there is no peer: the master itself tries to reach it;
* so many are silent at once that the master may be the one that is cut off: nobody is judged for a long time, because
  those that are silent may well train on together.

"Enough": a healthy member reaches at least half of its peers, so in a small job more than half must have failed to
reach it. In a large one eight are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice

from outrider.master.core.actions import ProbeMember
from outrider.master.core.events import NodeSeen
from outrider.master.core.faults import recovery
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import orders, readiness
from outrider.master.core.state import links as state_links
from outrider.master.core.state.job import RUNNING, STOPPING, State
from outrider.master.core.state.member import ALIVE, SILENT, Doubt, Member
from outrider.master.core.text import seconds
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.links import Probe, Probed

DOUBT_AT = 0.6
PROBERS = 3
MOST_PROBERS = 8
LOOK_AGAIN = 0.25
CUT_OFF_PATIENCE = 10.0
"""Times `replace_after`: how long silence of half of the job is put down to the master's own network."""
PATIENCES = ("replace", "stop", "unended", "start", "unready", "confirm", "absent", "patience", "rebuild", "finish",
             "stuck", "failed pod", "no room", "check", "collect", "unreachable", "alone")  # fmt: skip
"""Deadlines that judge others by the time that they take."""
RECONNECT_PATIENCE = 2.0
"""Times `silent_after`: after a pause of the master a silent member has so long to connect and speak at the least."""


def heard(state: State, member: Member) -> None:
    """A sign of life. O(1): the deadline stays where it is and finds out when it comes."""
    member.heard_at = state.now
    if member.doubt is not None or member.life == SILENT:
        _back(state, member)


def watch(state: State, member: Member) -> None:
    """From its first Hello on a member's silence means something."""
    state.deadlines.set(("hear", member.id), state.now + DOUBT_AT * state.spec.silent_after)


def note_stall(state: State, lost: float) -> None:
    """This process was paused: nobody could be heard."""
    state.membership.deaf_until = state.now
    for member_id in sorted(state.membership.doubted):
        member = state.members[member_id]
        end_doubt(state, member)
        if member.life == ALIVE:
            watch(state, member)
    soon = state.now + RECONNECT_PATIENCE * state.spec.silent_after
    for key, due in state.deadlines.of(PATIENCES):  # what was waited for could not be told to us, nor done in our clock
        state.deadlines.set(key, max(due + lost, soon))
    # less would have made nobody doubted, and without a world nobody is waited for
    if lost >= DOUBT_AT * state.spec.silent_after and state.world is not None:
        text = f"The master itself did not run for {seconds(lost)}; silence in that time is no member's fault."
        state.announce("MasterStalled", text, warning=True)


def listen(state: State, member_id: str) -> None:
    """The deadline of a member's next sign of life."""
    member = state.members.get(MemberId(member_id))
    if member is None or member.life != ALIVE or member.deleting:
        return
    quiet_since = max(member.heard_at, state.membership.deaf_until)
    quiet = state.now - quiet_since
    spec = state.spec
    if state.is_over:
        _listen_at_the_end(state, member, quiet_since)
        return
    if quiet < DOUBT_AT * spec.silent_after - 1e-6:
        state.deadlines.set(("hear", member.id), quiet_since + DOUBT_AT * spec.silent_after)
    elif member.doubt is None:
        _doubt(state, member, quiet)
        state.deadlines.set(("hear", member.id), quiet_since + spec.silent_after)
    elif quiet < spec.silent_after - 1e-6:
        state.deadlines.set(("hear", member.id), quiet_since + spec.silent_after)
    else:
        _judge(state, member, quiet)


def _listen_at_the_end(state: State, member: Member, quiet_since: float) -> None:
    """Nothing is lost by a wrong verdict any more, so it needs no witness."""
    due = quiet_since + state.spec.silent_after
    if state.now < due - 1e-6:
        state.deadlines.set(("hear", member.id), due)
    else:
        generation_job_end.unheard(state, member)


# -- doubt --------------------------------------------------------------------------------------------------------
def _doubt(state: State, member: Member, quiet: float) -> None:
    member.doubt = Doubt()
    state.membership.doubted.add(member.id)
    state.membership.crowd.note(member)
    readiness.note_staffing(state)
    ask(state, member, f"{member.id} has not been heard for {seconds(quiet)}.")


def ask(state: State, member: Member, why: str) -> None:
    """Peers that have not been asked yet; the master itself where there is nobody else."""
    doubt = member.doubt
    assert doubt is not None
    wanted = _witnesses_wanted(state) - len(doubt.missed_by)
    peers = list(islice(_healthy_peers(state, member), max(wanted, 0)))
    for peer in peers:
        reason = f"{why} {peer.id} is asked whether it reaches it."
        number = orders.give(state, peer, _probe(member), reason)
        doubt.asked[number] = peer.id
    if not peers and not doubt.missed_by:
        reason = f"{why} No other member can be asked, so the master tries to reach it."
        state.act(ProbeMember(member.id, member.address, member.probe_port, state.generation, reason))


def _probe(member: Member) -> Callable[[OrderId], Probe]:
    return lambda order: Probe(order, member.id, member.address, member.probe_port)


def _witnesses_wanted(state: State) -> int:
    """More than half of a member's peers in a small job."""
    peers = len(state.members) - 1
    return min(MOST_PROBERS, max(PROBERS, peers // 2 + 1))


def _healthy_peers(state: State, member: Member) -> Iterator[Member]:
    """Connected and in no doubt themselves, not asked yet; the search is given up where most of the job is silent."""
    doubt = member.doubt
    assert doubt is not None
    if 2 * len(state.membership.doubted) > len(state.members) + 1:
        return
    busy = set(doubt.asked.values()) | doubt.missed_by
    for peer in state.members.values():
        if peer.id != member.id and peer.session and peer.doubt is None and peer.life == ALIVE and peer.id not in busy:
            yield peer


def probed(state: State, peer: Member, answer: Probed) -> None:
    """What a peer found."""
    orders.acknowledge(state, peer, answer.order)
    member = state.members.get(answer.member)
    doubt = None if member is None else member.doubt
    if member is None or doubt is None or doubt.asked.pop(answer.order, None) is None:
        return
    if answer.reachable:
        doubt.reached_by.add(peer.id)
        readiness.refresh(state, member)
    else:
        doubt.missed_by.add(peer.id)


def own_probe(state: State, member_id: str, reachable: bool) -> None:
    """What the master itself found."""
    member = state.members.get(MemberId(member_id))
    if member is not None and member.doubt is not None:
        member.doubt.own = reachable


# -- verdict ------------------------------------------------------------------------------------------------------
def _judge(state: State, member: Member, quiet: float) -> None:
    doubt = member.doubt
    assert doubt is not None
    peers, others_silent = state.membership.crowd.beside(member, on_good_nodes=False)
    if doubt.reached_by:
        _leave_alone(state, member, quiet)
    elif doubt.own is not True and (why := witness(state, member)):
        _silence(state, member, quiet, why)
    elif peers and 2 * others_silent >= peers and quiet < CUT_OFF_PATIENCE * state.spec.replace_after:
        _suspect_ourselves(state, member, quiet, f"{others_silent + 1} of {peers + 1} members")
    elif not _has_others(state, member):
        _judge_alone(state, member, quiet)
    elif has_enough_witnesses(state, member):
        _silence(state, member, quiet, f"{_names(doubt.missed_by)} cannot reach it either")
    else:
        ask(state, member, f"{member.id} has not been heard for {seconds(quiet)}.")
        state.deadlines.set(("hear", member.id), state.now + LOOK_AGAIN)


def _has_others(state: State, member: Member) -> bool:
    """In its own seat, where this is one of a PS job: what a seat does not know it cannot ask."""
    present: Collection[MemberId] = state.membership.crowd.present
    few = min(present, state.members.keys(), key=len)
    return any(each != member.id and each in present and each in state.members for each in few)


def has_enough_witnesses(state: State, member: Member) -> bool:
    doubt = member.doubt
    assert doubt is not None
    if len(doubt.missed_by) >= _witnesses_wanted(state):
        return True
    pending = any(_is_healthy(state.members.get(peer)) for peer in doubt.asked.values())
    unasked = next(iter(_healthy_peers(state, member)), None) is not None
    if pending or unasked:
        return False
    return bool(doubt.missed_by) or doubt.own is False


def witness(state: State, member: Member) -> str:
    """What the platform says of the node against a member that is not heard; empty where it says nothing."""
    node = state.placement.nodes.get(member.node)
    return "" if node is None else not_ready(node)


def is_on_a_lost_node(state: State, member: Member) -> bool:
    node = state.placement.nodes.get(member.node)
    return node is not None and node.is_gone


def not_ready(node: NodeSeen) -> str:
    """Without a full stop: it stands within others."""
    what = "is no longer part of the cluster" if node.is_gone else "is not Ready"
    return f"node {node.node} {what}" + (f" ({node.reason})" if node.reason else "")


def _is_healthy(peer: Member | None) -> bool:
    return peer is not None and peer.life == ALIVE and peer.doubt is None and peer.session is not None


def _leave_alone(state: State, member: Member, quiet: float) -> None:
    """A peer reaches it: only its way to the master is broken. It is asked again as long as it is silent."""
    doubt = member.doubt
    assert doubt is not None
    trains = state.stage == RUNNING and state.world is not None and member.id in state.world.places
    if doubt.told != "reached":
        state.announce(
            "MasterCannotReachMember",
            f"{member.id} has not been heard for {seconds(quiet)}, but {_names(doubt.reached_by)} can reach it: "
            f"it is left alone{' and trains on' if trains else ''}.",
            member.id,
            warning=True,
        )
    if state.stage == STOPPING:
        readiness.stop_waiting_for(state, member)
    _renew(state, member, "reached")
    ask(state, member, f"{member.id} is still not heard.")
    readiness.refresh(state, member)
    state.deadlines.set(("hear", member.id), state.now + state.spec.silent_after)


def _judge_alone(state: State, member: Member, quiet: float) -> None:
    """No peer: the master's own attempt is the second witness."""
    doubt = member.doubt
    assert doubt is not None
    if doubt.own is False:
        _silence(state, member, quiet, "the master cannot reach it either")
        return
    if doubt.own is None:
        ask(state, member, f"{member.id} has not been heard for {seconds(quiet)}.")
        state.deadlines.set(("hear", member.id), state.now + LOOK_AGAIN)
        return
    if doubt.told != "own":
        doubt.told = "own"
        text = f"{member.id} has not been heard for {seconds(quiet)}, but it answers the master: it is left alone."
        state.announce("MasterCannotReachMember", text, member.id, warning=True)
    doubt.own = None
    ask(state, member, f"{member.id} is still not heard.")
    state.deadlines.set(("hear", member.id), state.now + state.spec.silent_after)


def _suspect_ourselves(state: State, member: Member, quiet: float, silent: str) -> None:
    doubt = member.doubt
    assert doubt is not None
    if doubt.told != "cut off":
        state.announce(
            "MasterNetworkSuspected",
            f"{silent} are silent at once, {member.id} for {seconds(quiet)}: the master may be the one that is cut "
            f"off, so nobody is left out for it.",
            member.id,
            warning=True,
        )
    _renew(state, member, "cut off")
    state.deadlines.set(("hear", member.id), state.now + state.spec.silent_after)


def _renew(state: State, member: Member, told: str) -> None:
    """What was found out so far is too old for a verdict."""
    _drop_questions(state, member)
    member.doubt = Doubt(told=told)


def _silence(state: State, member: Member, quiet: float, witness: str) -> None:
    """The verdict: left out of the next generation, until it speaks."""
    _drop_questions(state, member)
    state.membership.doubted.discard(member.id)
    member.doubt = None
    member.life = SILENT
    reason = (
        f"{member.id} is cut off, or frozen: it has been silent for {seconds(quiet)} and {witness}; it is left out "
        f"until it speaks again."
    )
    readiness.refresh(state, member)
    readiness.note_staffing(state)
    state.deadlines.set(("replace", member.id), state.now + max(state.spec.replace_after - quiet, 0.0))
    recovery.member_lost(state, member, "MemberSilent", reason)


def remember(state: State, member: Member) -> None:
    """An earlier master had left it out: so it stays, until it speaks. It has as long as anybody to speak to this one:
    its connection may be to that other, which is frozen itself."""
    uid, heard_at = state.earlier.silent.get(member.id, (None, 0.0))
    if uid is None or uid != member.uid:
        return
    member.life, member.greeted, member.heard_at = SILENT, True, heard_at
    state.membership.crowd.note(member)
    state.deadlines.set(("replace", member.id), state.now + state.spec.replace_after)


# -- return -------------------------------------------------------------------------------------------------------
def _back(state: State, member: Member) -> None:
    if member.doubt is not None:
        end_doubt(state, member)
    if member.life == SILENT and not member.deleting:
        member.life = ALIVE
        state_links.heard_again(state.links, member.id, state.now)
        state.deadlines.cancel(("replace", member.id))
        place = f"with rank index {member.rank_index}" if member.rank_index is not None else "as a spare"
        state.announce("MemberReturned", f"{member.id} speaks again and comes back {place}.", member.id)
    if member.life == ALIVE:
        watch(state, member)
    orders.await_stopped(state, member)
    readiness.wait_again(state, member)
    readiness.note_staffing(state)
    readiness.refresh(state, member)


def end_doubt(state: State, member: Member) -> None:
    _drop_questions(state, member)
    member.doubt = None
    state.membership.doubted.discard(member.id)
    readiness.refresh(state, member)


def _drop_questions(state: State, member: Member) -> None:
    doubt = member.doubt
    assert doubt is not None
    for number, peer_id in doubt.asked.items():
        peer = state.members.get(peer_id)
        if peer is not None:
            orders.acknowledge(state, peer, number)


def forget(state: State, member: Member) -> None:
    """The member is no more: nobody needs to look for it."""
    if member.doubt is not None:
        end_doubt(state, member)
    for kind in ("hear", "replace"):
        state.deadlines.cancel((kind, member.id))


def _names(members: set[MemberId]) -> str:
    return ", ".join(sorted(members))
