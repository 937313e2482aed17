"""Applies the user's rules about nodes: `recovery.rules` with a condition (of node-problem-detector, say) or a taint.

A rule acts when it begins to apply: on the members of the node, and on those that were on their way there. fail ends
the job. restart restarts the ranks in place. replace drains the members of the node, so that training continues until
their replacements are ready, and new pods avoid the node for as long as the rule applies; with replaceNode for a day. A
pod that still lands there later is left alone: no room was left without that node, or more than half of the nodes
would be excluded, so its replacement would land there again, and so on for ever.
"""

from __future__ import annotations

from outrider.master.core.events import NodeSeen
from outrider.master.core.faults import delete_pod, failure_policy, node_exclusion
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import lifecycle
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.spec import FAIL, REPLACE, RESTART
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import ALIVE, Member
from outrider.master.core.state.rules import Flag

LEAVE_GRACE = 300.0
"""Seconds for a replacement to become ready, as Kubernetes gives the pods of an unreachable node."""
OWNERS_GRACE = 30.0
"""The same for a pod whose controller creates another one only after its deletion."""


def seen(state: State, node: NodeSeen) -> None:
    """Takes the present state of a node. O(members) if a rule begins to apply."""
    state.rules.marked.pop(node.node, None)
    if node.conditions or node.taints:
        state.rules.marked[node.node] = node
    action, why = failure_policy.of_node(state, node)
    flag = state.rules.flags.get(node.node)
    if flag is not None and flag.why != why:
        _end(state, node.node, flag)
    if not action or state.is_over:
        return
    if flag is None or flag.why != why:
        _begin(state, node.node, action, why)
    else:  # an earlier master may not have finished it
        _replace_all(state, node.node, flag)


def edited(state: State) -> None:
    """The user may have changed the rules."""
    failure_policy.edited(state)
    for _name, node in sorted(state.rules.marked.items()):
        seen(state, node)


def arrived(state: State, member: Member) -> None:
    """A member's pod is scheduled to a node. O(1)."""
    flag = state.rules.flags.get(member.node)
    if flag is None or state.is_over or member.uid is None:
        return
    if member.uid not in flag.to_go and member.created_at >= flag.since:
        return
    flag.is_told = flag.is_told or flag.action != RESTART
    if flag.action == FAIL:
        _fail(state, member.node, flag)
    elif flag.action != RESTART:
        flag.to_go.add(member.uid)
        _replace(state, member, flag)


def _begin(state: State, node: str, action: str, why: str) -> None:
    there = [m for _id, m in sorted(state.members.items()) if m.node == node]
    flag = state.rules.flags[node] = Flag(action, why, state.now, is_told=bool(there))
    state.mark_status()
    if not there:
        return
    state.announce("NodeRuleMet", f"Node {node}: {why}. Members there: {', '.join(m.id for m in there)}.", warning=True)
    if action == FAIL:
        _fail(state, node, flag)
    elif action == RESTART:
        world = state.world
        if world is not None and state.stage == RUNNING and any(m.id in world.places for m in there):
            lifecycle.stop(state, f"Node {node}: {why}.")
    else:
        node_exclusion.condemn(state, node, why)
        flag.to_go.update(m.uid for m in there if m.uid is not None)
        _replace_all(state, node, flag)


def _end(state: State, node: str, flag: Flag) -> None:
    del state.rules.flags[node]
    if flag.is_told:
        state.announce("NodeRuleCleared", f"Node {node}: {flag.why.partition(' requires ')[0]} no longer applies.")
    if flag.action == REPLACE and state.exclusion.condemned.pop(node, None) is not None:
        node_exclusion.look(state)
    state.mark_status()


def _fail(state: State, node: str, flag: Flag) -> None:
    generation_job_end.fail(state, 1, f"Node {node}: {flag.why}.")


def _replace_all(state: State, node: str, flag: Flag) -> None:
    for _id, member in sorted(state.members.items()):
        if member.node == node and member.uid in flag.to_go:
            _replace(state, member, flag)


def _replace(state: State, member: Member, flag: Flag) -> None:
    if member.life != ALIVE or member.leaving or member.deleting:
        return
    why = f"node {member.node}: {flag.why}"
    if not member.has_controller:
        delete_pod.keep(state, member, f"{member.id} must be replaced ({why})")
        return
    is_owners = state.spec.is_adopted
    scaling_resize.must_leave(state, member, why, OWNERS_GRACE if is_owners else LEAVE_GRACE)
    if is_owners or not member.greeted:
        delete_pod.dismiss(state, member, f"{member.id} must be replaced: {why}.", OWNERS_GRACE)
