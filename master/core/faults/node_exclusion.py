"""Nodes on which members fail again and again: new pods keep off them.

What speaks against a node is a fault of a member there that was the first of its incident and that a machine can cause:
a pod that a signal ended or its node refused, a template or launcher that died, silence that others confirm, a hang
that it was to blame for, a link to another member that was cut, a rank that a signal ended, an exception that names a
device, a driver or a file system. Not the script's own exceptions and exit codes, not a deleted or evicted pod, not a
container that ran out of its own memory: those go with the job wherever it runs. Faults of one node within a minute are
one incident, because a machine that dies takes its members with it.

A node is bad with two incidents within a day, if that is at least three times what the other nodes of the job have on
average: a script that crashes everywhere speaks against none. It follows that of n nodes at most (n + 2) / 3 can be
bad, never more than half: each has at least 3 / (n + 2) of all incidents. New pods keep off; who runs there is left
alone. Where a pod finds no room without them, a bad node is better than none, and all begin anew.

Everything follows from the list of faults, which is saved.
"""

from __future__ import annotations

import re
from collections import Counter

from outrider.master.core.events import PodSeen
from outrider.master.core.spec import RETRYABLE_CODES
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.text import seconds
from outrider.wire.ids import MemberId
from outrider.wire.messages.generation import WorkerExit

WINDOW = 24 * 3600.0
INCIDENTS = 2
ONE_INCIDENT = 60.0
TIMES_THE_OTHERS = 3.0
PARTED = "NetworkPartition"
"""It and another member could not see each other, and it was replaced for that."""
NO_ROOM_PATIENCE = 60.0
"""Seconds that a pod which keeps off nodes may find no room before it is made without that."""
OF_THE_MACHINE = re.compile(
    r"\bECC\b|\bXid\b|uncorrectable|hardware (error|failure)|unspecified launch failure|fallen off the bus|"
    r"device (is )?(lost|unavailable)|busy or unavailable|no CUDA-capable device|(driver|NVML|HIP runtime) error|"
    r"Input/output error|Stale file handle|No space left on device|Read-only file system",
    re.IGNORECASE,
)
REFUSED_BY_NODE = ("UnexpectedAdmissionError", "OutOf", "NodeAffinity", "ContainerStatusUnknown")
"""Words of a pod's status.reason with which a kubelet does not run what the scheduler gave it: a device that its plugin
cannot hand out, resources that it does not have. A deadline or a full volume is the pod's own."""


# -- what speaks against a node -----------------------------------------------------------------------------------
def blamed(kind: str, member: Member | None, exit: WorkerExit | None = None) -> str:
    """The node that a fault of this kind speaks against; empty where it speaks against none."""
    if member is None:
        return ""
    if kind == "WorkerExited":
        return member.node if exit is not None and _is_of_the_machine(exit) else ""
    if kind == "MemberFailed":
        by_node = member.exit_code is None and member.pod_reason.startswith(REFUSED_BY_NODE)
        by_signal = member.exit_code in RETRYABLE_CODES and not member.out_of_memory
        return member.node if by_node or by_signal or member.hung else ""
    return member.node if kind in ("TrainerLost", "MemberSilent", "MemberExcluded", "HangDetected", PARTED) else ""


def _is_of_the_machine(exit: WorkerExit) -> bool:
    if exit.out_of_memory:
        return False
    if exit.signal is not None or exit.code in RETRYABLE_CODES:
        return True
    return OF_THE_MACHINE.search(exit.error_message) is not None


# -- what follows -------------------------------------------------------------------------------------------------
def avoided(state: State) -> tuple[str, ...]:
    """Nodes that a pod which is made now keeps off. O(faults + members)."""
    incidents, condemned = (
        _incidents(state),
        {n for n, at in state.exclusion.condemned.items() if at > state.now - WINDOW},
    )
    if not condemned and max(incidents.values(), default=0) < INCIDENTS:
        return ()
    used = len(_used(state) | set(incidents) | condemned)
    bad = {node for node in incidents if _stands_out(node, incidents, used)}
    return tuple(sorted(bad | condemned)) if 2 * len(bad | condemned) <= used else tuple(sorted(bad))


def condemn(state: State, node: str, why: str) -> None:
    """The user's rule or the node check says so of this node. More than half of the nodes are never condemned."""
    if node:
        state.exclusion.condemned[node] = state.now
        look(state, why)


def incidents_on(state: State, node: str) -> int:
    return _incidents(state)[node]


def _incidents(state: State) -> Counter[str]:
    """By node. The faults are in the order of time."""
    last: dict[str, float] = {}
    found: Counter[str] = Counter()
    for fault in state.faults.noted:
        if fault.node and fault.at >= max(state.now - WINDOW, state.exclusion.forgiven_at):
            if fault.at - last.get(fault.node, float("-inf")) > ONE_INCIDENT:
                found[fault.node] += 1
            last[fault.node] = fault.at
    return found


def _used(state: State) -> set[str]:
    return {m.node for members in (state.members, state.placement.past) for m in members.values() if m.node}


def _stands_out(node: str, incidents: Counter[str], used: int) -> bool:
    others = used - 1
    if incidents[node] < INCIDENTS or others < 1:
        return False
    return incidents[node] >= TIMES_THE_OTHERS * (incidents.total() - incidents[node]) / others


def look(state: State, why: str = "") -> None:
    """A fault was noted, or a pod is to be made: says which nodes are avoided from now on, and which not any more."""
    found = avoided(state)
    if found == state.exclusion.avoiding:
        return
    for node in sorted(set(found) - set(state.exclusion.avoiding)):
        what = f"New pods keep off node {node}"
        if state.spec.is_adopted:
            what = f"Node {node} is bad, and another controller's pods go there until it is cordoned"
        state.announce("NodeExcluded", f"{what}: {why or _why(state, node)}.", warning=True)
    for node in sorted(set(state.exclusion.avoiding) - set(found)):
        state.announce(
            "NodeExclusionLifted", f"New pods may land on node {node} again: too little speaks against it now."
        )
    state.exclusion.avoiding = found
    state.mark_status()


def _why(state: State, node: str) -> str:
    if node in state.exclusion.condemned:
        return "recovery.rules says so"
    told = [fault for fault in state.faults.noted if fault.node == node]
    ago, last = seconds(state.now - told[0].at), told[-1].reason.rstrip(".")
    return f"{_incidents(state)[node]} incidents there in {ago}, and fewer on the job's other nodes; the last: {last}"


# -- no room without it -------------------------------------------------------------------------------------------
def note_room(state: State, member: Member, pod: PodSeen) -> None:
    """A pod that keeps off nodes finds no room, or does."""
    if not pod.unschedulable or not member.avoid:
        state.deadlines.cancel(("no room", member.id))
    elif state.deadlines.at(("no room", member.id)) is None:
        state.deadlines.set(("no room", member.id), state.now + NO_ROOM_PATIENCE)


def forgive(state: State, member_id: str) -> Member | None:
    """There was no room without the bad nodes: they count as good again. Returns the pod to be made anew."""
    member = state.members.get(MemberId(member_id))
    if member is None or not member.unschedulable or not member.avoid or member.deleting or state.is_over:
        return None
    state.exclusion.forgiven_at, state.exclusion.avoiding = state.now, ()
    state.exclusion.condemned.clear()
    nodes = ", ".join(member.avoid)
    text = f"{member.id} finds no room off {nodes}: a bad node is better than none, so it is made anew without that."
    state.announce("NodeExclusionLifted", text, member.id, warning=True)
    state.mark_status()
    return member
