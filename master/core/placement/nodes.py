"""Nodes that are not Ready, or deleted: evidence about their members, never a verdict.

A node's condition only says whether the platform hears its kubelet. What the master does depends on each member there:

* A member that reports is left alone; one Event says so.
* A member that has not started is replaced, because its kubelet may never start it.
* A silent member is judged at once. If its node is not Ready, no peer needs to be asked, and silence of half of the
  job is not put down to the master's own network: the platform does not hear that machine either.
* A member on a node that the cluster has deleted cannot stay. If it reports, it drains before its pod is removed; if it
  is silent, its pod is deleted at once, by force. If the node comes back before that, and no replacement has the
  member's rank index yet, the member stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.master.core.events import NodeSeen
from outrider.master.core.faults import node_rules
from outrider.master.core.generation import readiness
from outrider.master.core.membership import failure_detector, pod_deletion
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.state.job import State
from outrider.master.core.state.member import ALIVE, SILENT, Member
from outrider.wire.ids import MemberId

GONE_GRACE = 40.0
"""Seconds until the cluster removes the pods of a node that it has deleted (kube-controller-manager: podgc)."""
NAMED = 5
"""The most members that an Event names."""


def seen(state: State, event: NodeSeen) -> None:
    before = state.placement.nodes.pop(event.node, None)
    if not event.is_ready:
        state.placement.nodes[event.node] = event
    state.membership.crowd.note_node(event.node, event.is_ready)
    node_rules.seen(state, event)
    there = [m for _id, m in sorted(state.members.items()) if m.node == event.node]
    if event.is_ready and before is not None and not state.is_over:
        _is_back(state, event, there)
    if event.is_ready or not there or state.is_over:
        return
    if before is None or before.is_gone != event.is_gone:
        _announce(state, event, there)
    for member in there:
        _look_at(state, member, event)


def _is_back(state: State, event: NodeSeen, there: Sequence[Member]) -> None:
    state.announce("NodeReady", f"Node {event.node} is Ready again.")
    readiness.note_staffing(state)
    for member in there:
        if member.leaves_with_node and member.rank_index is not None and not _is_going(member):
            scaling_resize.stay(state, member, f"node {event.node} is part of the cluster again")


def _is_going(member: Member) -> bool:
    return member.deleting or member.grace_ends is not None


def _announce(state: State, event: NodeSeen, there: Sequence[Member]) -> None:
    what = f"N{failure_detector.not_ready(event)[1:]}."
    heard = [m for m in there if is_heard(m)]
    if not heard:
        text = f"{what} Its members do not report: {_names(there)}."
    elif event.is_gone:
        text = f"{what} Members that still report from it train until their replacements are ready: {_names(heard)}."
    else:
        text = f"{what} Members that still report from it continue training: {_names(heard)}."
    state.announce("NodeGone" if event.is_gone else "NodeNotReady", text, warning=True)


def _look_at(state: State, member: Member, event: NodeSeen) -> None:
    """Sets the member's deadlines to now, so that they run once everything that arrived with this event is read."""
    if member.life == SILENT and event.is_gone:
        state.deadlines.set(("replace", member.id), state.now)
    elif member.suspicion is not None:
        state.deadlines.set(("hear", member.id), state.now)
    elif _is_unstarted(member):
        state.deadlines.set(("unstarted", member.id), state.now)
    elif event.is_gone and is_heard(member) and not member.deleting:
        scaling_resize.must_leave(state, member, failure_detector.not_ready(event), GONE_GRACE, with_node=True)
    if member.is_stuck:
        state.deadlines.set(("stuck", member.id), state.now)


def unstarted(state: State, member_id: str) -> None:
    """Gives up a member that has not started on a node that is still not Ready.

    The node is looked up again: a master that was paused reads first that it is not Ready, then that it is Ready again.
    """
    member = state.members.get(MemberId(member_id))
    node = None if member is None else state.placement.nodes.get(member.node)
    if member is not None and node is not None and _is_unstarted(member):
        pod_deletion.will_not_start(state, member, failure_detector.not_ready(node))


def _is_unstarted(member: Member) -> bool:
    return member.pod_phase == "pending" and not member.greeted


def is_heard(member: Member) -> bool:
    return member.life == ALIVE and member.greeted and member.suspicion is None


def _names(members: Sequence[Member]) -> str:
    names = [str(m.id) for m in members]
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
