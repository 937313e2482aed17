"""The failure detector: suspicion of silent members, direct and indirect probes, and the verdict.

A missing report proves nothing: the master, the network or the machine may be slow. So after 0.6 of `silent_after` the
member is suspected: healthy peers are asked to probe its sidecar (indirect probes), and a replacement is started early,
which stays as a spare if it was not needed. At `silent_after` the probes decide:

* a peer reaches the member: it keeps running, and the user reads that only the master cannot reach it;
* enough peers do not reach it: the next generation forms without it. Its next message reverses that;
* its node is not Ready: the next generation forms without it, unless a peer reaches it;
* the member has no peer: the master probes it itself (direct probe);
* so many members are silent at once that the master itself may be cut off: no member is judged for a long time, because
  the silent members may still train together.

"Enough": a healthy member reaches at least half of its peers, so in a small job more than half of them must have failed
to reach the member. In a large job eight peers are asked.
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
from outrider.master.core.state.member import ALIVE, SILENT, Member, Suspicion
from outrider.master.core.text import seconds
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.links import Probe, Probed

SUSPECT_AT = 0.6
PROBERS = 3
MOST_PROBERS = 8
LOOK_AGAIN = 0.25
CUT_OFF_PATIENCE = 10.0
"""Multiple of `replace_after` for which silence of half of the job is attributed to the master's own network."""
PATIENCES = ("replace", "stop", "unended", "start", "unready", "confirm", "absent", "patience", "rebuild", "finish",
             "stuck", "failed pod", "no room", "check", "collect", "unreachable", "alone")  # fmt: skip
"""Kinds of deadlines that judge members or the platform by the time that they take."""
RECONNECT_PATIENCE = 2.0
"""Multiple of `silent_after` that a silent member has at least to reconnect after a pause of the master."""


def heard(state: State, member: Member) -> None:
    """Notes a sign of life. O(1): the deadline stays as it is, and looks at `heard_at` when it comes."""
    member.heard_at = state.now
    if member.suspicion is not None or member.life == SILENT:
        _back(state, member)


def watch(state: State, member: Member) -> None:
    """Watches a member for silence, from its first Hello on."""
    state.deadlines.set(("hear", member.id), state.now + SUSPECT_AT * state.spec.silent_after)


def note_stall(state: State, lost: float) -> None:
    """Extends deadlines after a pause of this process, in which it could not hear any member."""
    state.membership.deaf_until = state.now
    for member_id in sorted(state.membership.suspected):
        member = state.members[member_id]
        end_suspicion(state, member)
        if member.life == ALIVE:
            watch(state, member)
    soon = state.now + RECONNECT_PATIENCE * state.spec.silent_after
    for key, due in state.deadlines.of(PATIENCES):  # members had no way to report, and the pause is not their time
        state.deadlines.set(key, max(due + lost, soon))
    # a shorter pause would have made no member suspected, and without a generation the master waits for no report
    if lost >= SUSPECT_AT * state.spec.silent_after and state.world is not None:
        text = (
            f"The master was paused for {seconds(lost)}, so it ignores the silence of members in that time. "
            "Check its CPU limit."
        )
        state.announce("MasterStalled", text, warning=True)


def listen(state: State, member_id: str) -> None:
    """Handles the deadline of a member's next sign of life."""
    member = state.members.get(MemberId(member_id))
    if member is None or member.life != ALIVE or member.deleting:
        return
    quiet_since = max(member.heard_at, state.membership.deaf_until)
    quiet = state.now - quiet_since
    spec = state.spec
    if state.is_over:
        _listen_at_the_end(state, member, quiet_since)
        return
    if quiet < SUSPECT_AT * spec.silent_after - 1e-6:
        state.deadlines.set(("hear", member.id), quiet_since + SUSPECT_AT * spec.silent_after)
    elif member.suspicion is None:
        _suspect(state, member, quiet)
        state.deadlines.set(("hear", member.id), quiet_since + spec.silent_after)
    elif quiet < spec.silent_after - 1e-6:
        state.deadlines.set(("hear", member.id), quiet_since + spec.silent_after)
    else:
        _judge(state, member, quiet)


def _listen_at_the_end(state: State, member: Member, quiet_since: float) -> None:
    """Judges silence at the end of the job without probes: a wrong verdict costs nothing there."""
    due = quiet_since + state.spec.silent_after
    if state.now < due - 1e-6:
        state.deadlines.set(("hear", member.id), due)
    else:
        generation_job_end.unheard(state, member)


# -- suspicion ----------------------------------------------------------------------------------------------------
def _suspect(state: State, member: Member, quiet: float) -> None:
    member.suspicion = Suspicion()
    state.membership.suspected.add(member.id)
    state.membership.crowd.note(member)
    readiness.note_staffing(state)
    probe(state, member, _has_been_silent(member, quiet))


def _has_been_silent(member: Member, quiet: float) -> str:
    return f"{member.id} has been silent for {seconds(quiet)}."


def probe(state: State, member: Member, why: str) -> None:
    """Asks peers that were not asked yet to probe the member; without any such peer the master probes it itself."""
    suspicion = member.suspicion
    assert suspicion is not None
    missing = _probes_needed(state) - len(suspicion.missed_by)
    peers = list(islice(_healthy_peers(state, member), max(missing, 0)))
    for peer in peers:
        reason = f"{why} {peer.id} is asked to probe it."
        number = orders.give(state, peer, _probe_order(member), reason)
        suspicion.pending[number] = peer.id
    if not peers and not suspicion.missed_by:
        reason = f"{why} No other member can probe it, so the master probes it itself."
        state.act(ProbeMember(member.id, member.address, member.probe_port, state.generation, reason))


def _probe_order(member: Member) -> Callable[[OrderId], Probe]:
    return lambda order: Probe(order, member.id, member.address, member.probe_port)


def _probes_needed(state: State) -> int:
    """The number of peers that must probe a member: in a small job more than half of its peers."""
    peers = len(state.members) - 1
    return min(MOST_PROBERS, max(PROBERS, peers // 2 + 1))


def _healthy_peers(state: State, member: Member) -> Iterator[Member]:
    """Peers that are connected, not suspected and not asked yet; none if most of the job is silent."""
    suspicion = member.suspicion
    assert suspicion is not None
    if 2 * len(state.membership.suspected) > len(state.members) + 1:
        return
    busy = set(suspicion.pending.values()) | suspicion.missed_by
    for peer in state.members.values():
        if (
            peer.id != member.id
            and peer.session
            and peer.suspicion is None
            and peer.life == ALIVE
            and peer.id not in busy
        ):
            yield peer


def probed(state: State, peer: Member, answer: Probed) -> None:
    """Notes the result of an indirect probe."""
    orders.acknowledge(state, peer, answer.order)
    member = state.members.get(answer.member)
    suspicion = None if member is None else member.suspicion
    if member is None or suspicion is None or suspicion.pending.pop(answer.order, None) is None:
        return
    if answer.reachable:
        suspicion.reached_by.add(peer.id)
        readiness.refresh(state, member)
    else:
        suspicion.missed_by.add(peer.id)


def direct_probed(state: State, member_id: str, reachable: bool) -> None:
    """Notes the result of the master's direct probe."""
    member = state.members.get(MemberId(member_id))
    if member is not None and member.suspicion is not None:
        member.suspicion.direct = reachable


# -- verdict ------------------------------------------------------------------------------------------------------
def _judge(state: State, member: Member, quiet: float) -> None:
    suspicion = member.suspicion
    assert suspicion is not None
    peers, others_silent = state.membership.crowd.beside(member, on_good_nodes=False)
    if suspicion.reached_by:
        _keep_running(state, member, quiet)
    elif suspicion.direct is not True and (why := witness(state, member)):
        _silence(state, member, quiet, why)
    elif peers and 2 * others_silent >= peers and quiet < CUT_OFF_PATIENCE * state.spec.replace_after:
        _suspect_ourselves(state, member, quiet, f"{others_silent + 1} of {peers + 1} members")
    elif not _has_others(state, member):
        _judge_alone(state, member, quiet)
    elif has_enough_witnesses(state, member):
        _silence(state, member, quiet, f"{_names(suspicion.missed_by)} cannot reach it either")
    else:
        probe(state, member, _has_been_silent(member, quiet))
        state.deadlines.set(("hear", member.id), state.now + LOOK_AGAIN)


def _has_others(state: State, member: Member) -> bool:
    """Whether the member has peers to ask; in a PS job only those of its own task are known here."""
    present: Collection[MemberId] = state.membership.crowd.present
    few = min(present, state.members.keys(), key=len)
    return any(each != member.id and each in present and each in state.members for each in few)


def has_enough_witnesses(state: State, member: Member) -> bool:
    suspicion = member.suspicion
    assert suspicion is not None
    if len(suspicion.missed_by) >= _probes_needed(state):
        return True
    pending = any(_is_healthy(state.members.get(peer)) for peer in suspicion.pending.values())
    unasked = next(iter(_healthy_peers(state, member)), None) is not None
    if pending or unasked:
        return False
    return bool(suspicion.missed_by) or suspicion.direct is False


def witness(state: State, member: Member) -> str:
    """What the platform reports against the node of a silent member; empty if it reports nothing."""
    node = state.placement.nodes.get(member.node)
    return "" if node is None else not_ready(node)


def is_on_a_lost_node(state: State, member: Member) -> bool:
    node = state.placement.nodes.get(member.node)
    return node is not None and node.is_gone


def not_ready(node: NodeSeen) -> str:
    """A clause on a node that is not Ready or gone, without a full stop."""
    what = "is no longer part of the cluster" if node.is_gone else "is not Ready"
    return f"node {node.node} {what}" + (f" ({node.reason})" if node.reason else "")


def _is_healthy(peer: Member | None) -> bool:
    return peer is not None and peer.life == ALIVE and peer.suspicion is None and peer.session is not None


def _keep_running(state: State, member: Member, quiet: float) -> None:
    """Leaves a member alone that a peer reaches: only its path to the master is broken.

    Peers probe it again for as long as it is silent.
    """
    suspicion = member.suspicion
    assert suspicion is not None
    trains = state.stage == RUNNING and state.world is not None and member.id in state.world.places
    if suspicion.reported != "reached":
        state.announce(
            "MasterCannotReachMember",
            f"{member.id} has been silent for {seconds(quiet)}, but {_names(suspicion.reached_by)} can reach it: "
            f"it is not replaced{' and continues training' if trains else ''}.",
            member.id,
            warning=True,
        )
    if state.stage == STOPPING:
        readiness.stop_waiting_for(state, member)
    _renew(state, member, "reached")
    probe(state, member, f"{member.id} is still silent.")
    readiness.refresh(state, member)
    state.deadlines.set(("hear", member.id), state.now + state.spec.silent_after)


def _judge_alone(state: State, member: Member, quiet: float) -> None:
    """Judges a member without peers by the master's direct probe."""
    suspicion = member.suspicion
    assert suspicion is not None
    if suspicion.direct is False:
        _silence(state, member, quiet, "the master cannot reach it either")
        return
    if suspicion.direct is None:
        probe(state, member, _has_been_silent(member, quiet))
        state.deadlines.set(("hear", member.id), state.now + LOOK_AGAIN)
        return
    if suspicion.reported != "direct":
        suspicion.reported = "direct"
        text = f"{member.id} has been silent for {seconds(quiet)}, but answers the master's probe: it is not replaced."
        state.announce("MasterCannotReachMember", text, member.id, warning=True)
    suspicion.direct = None
    probe(state, member, f"{member.id} is still silent.")
    state.deadlines.set(("hear", member.id), state.now + state.spec.silent_after)


def _suspect_ourselves(state: State, member: Member, quiet: float, silent: str) -> None:
    suspicion = member.suspicion
    assert suspicion is not None
    if suspicion.reported != "cut off":
        state.announce(
            "MasterNetworkSuspected",
            f"{silent} are silent at the same time, {member.id} for {seconds(quiet)}: the master itself may be cut "
            f"off from the network, so no member is excluded.",
            member.id,
            warning=True,
        )
    _renew(state, member, "cut off")
    state.deadlines.set(("hear", member.id), state.now + state.spec.silent_after)


def _renew(state: State, member: Member, reported: str) -> None:
    """Starts the suspicion again: the results of the probes so far are too old for a verdict."""
    _drop_questions(state, member)
    member.suspicion = Suspicion(reported=reported)


def _silence(state: State, member: Member, quiet: float, witness: str) -> None:
    """The verdict: the next generation forms without the member, until the master hears it again."""
    _drop_questions(state, member)
    state.membership.suspected.discard(member.id)
    member.suspicion = None
    member.life = SILENT
    reason = (
        f"{member.id} is cut off or frozen: it has been silent for {seconds(quiet)}, and {witness}. The job continues "
        f"without it until it is heard again."
    )
    readiness.refresh(state, member)
    readiness.note_staffing(state)
    state.deadlines.set(("replace", member.id), state.now + max(state.spec.replace_after - quiet, 0.0))
    recovery.member_lost(state, member, "MemberSilent", reason)


def remember(state: State, member: Member) -> None:
    """Keeps a member silent that an earlier master had found silent, until this master hears it.

    It has as long as any member to reach this master: it may still be connected to the earlier one, which is frozen.
    """
    uid, heard_at = state.earlier.silent.get(member.id, (None, 0.0))
    if uid is None or uid != member.uid:
        return
    member.life, member.greeted, member.heard_at = SILENT, True, heard_at
    state.membership.crowd.note(member)
    state.deadlines.set(("replace", member.id), state.now + state.spec.replace_after)


# -- return -------------------------------------------------------------------------------------------------------
def _back(state: State, member: Member) -> None:
    if member.suspicion is not None:
        end_suspicion(state, member)
    if member.life == SILENT and not member.deleting:
        member.life = ALIVE
        state_links.heard_again(state.links, member.id, state.now)
        state.deadlines.cancel(("replace", member.id))
        place = f"with rank index {member.rank_index}" if member.rank_index is not None else "as a spare"
        state.announce("MemberReturned", f"{member.id} is heard again and returns {place}.", member.id)
    if member.life == ALIVE:
        watch(state, member)
    orders.await_stopped(state, member)
    readiness.wait_again(state, member)
    readiness.note_staffing(state)
    readiness.refresh(state, member)


def end_suspicion(state: State, member: Member) -> None:
    _drop_questions(state, member)
    member.suspicion = None
    state.membership.suspected.discard(member.id)
    readiness.refresh(state, member)


def _drop_questions(state: State, member: Member) -> None:
    suspicion = member.suspicion
    assert suspicion is not None
    for number, peer_id in suspicion.pending.items():
        peer = state.members.get(peer_id)
        if peer is not None:
            orders.acknowledge(state, peer, number)


def forget(state: State, member: Member) -> None:
    """Ends all suspicion of a member that is gone."""
    if member.suspicion is not None:
        end_suspicion(state, member)
    for kind in ("hear", "replace"):
        state.deadlines.cancel((kind, member.id))


def _names(members: set[MemberId]) -> str:
    return ", ".join(sorted(members))
