"""Excludes nodes on which members fail repeatedly: new pods avoid them.

A fault counts against a node if it is the first of its incident and a machine can cause it: a pod that a signal ended
or its node rejected, a template or launcher that died, silence that others confirm, a hang that the member caused, a
link to another member that was down, a rank that a signal ended, an exception that names a device, a driver or a file
system. The script's own exceptions and exit codes, a deleted or evicted pod, and a container that ran out of its own
memory do not count: they follow the job wherever it runs. Faults on one node within a minute are one incident, because
a machine that dies takes its members with it.

A node is bad after two incidents within a day, if that is at least three times what the other nodes of the job have on
average: a script that crashes everywhere counts against no node. It follows that of n nodes at most (n + 2) / 3 can be
bad, never more than half: each has at least 3 / (n + 2) of all incidents. New pods avoid bad nodes; members that run
there are left alone. If a pod finds no room without the bad nodes, a bad node is better than none, and all counts start
again.

Everything is derived from the list of faults, which is saved.
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
"""The kind of fault in which two members could not reach each other, and one of them was replaced."""
NO_ROOM_PATIENCE = 60.0
"""Seconds for which a pod that avoids nodes may find no room before it is created again without that restriction."""
OF_THE_MACHINE = re.compile(
    r"\bECC\b|\bXid\b|uncorrectable|hardware (error|failure)|unspecified launch failure|fallen off the bus|"
    r"device (is )?(lost|unavailable)|busy or unavailable|no CUDA-capable device|(driver|NVML|HIP runtime) error|"
    r"Input/output error|Stale file handle|No space left on device|Read-only file system",
    re.IGNORECASE,
)
REFUSED_BY_NODE = ("UnexpectedAdmissionError", "OutOf", "NodeAffinity", "ContainerStatusUnknown")
"""Prefixes of a pod's status.reason with which a kubelet rejects what the scheduler gave it: a device that its plugin
cannot hand out, resources that it does not have. A deadline or a full volume is the pod's own fault."""


# -- what counts against a node -----------------------------------------------------------------------------------
def node_at_fault(kind: str, member: Member | None, exit: WorkerExit | None = None) -> str:
    """The node that a fault of this kind counts against; empty if it counts against none."""
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


# -- excluded nodes -----------------------------------------------------------------------------------------------
def avoided(state: State) -> tuple[str, ...]:
    """Nodes that a pod created now must avoid. O(faults + members)."""
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
    """Excludes a node for a rule, the node check or slowness, unless more than half of the nodes would be excluded."""
    if node:
        state.exclusion.condemned[node] = state.now
        look(state, why)


def incidents_on(state: State, node: str) -> int:
    return _incidents(state)[node]


def _incidents(state: State) -> Counter[str]:
    """The number of incidents by node. The faults are in the order of time."""
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
    """Announces changes of the excluded nodes, after a fault and before a pod is created."""
    found = avoided(state)
    if found == state.exclusion.avoiding:
        return
    for node in sorted(set(found) - set(state.exclusion.avoiding)):
        what = f"New pods avoid node {node}"
        if state.spec.is_adopted:
            what = f"Pods of another controller still go to the bad node {node} (cordon it to prevent that)"
        state.announce("NodeExcluded", f"{what}: {why or _why(state, node)}.", warning=True)
    for node in sorted(set(state.exclusion.avoiding) - set(found)):
        text = f"New pods may use node {node} again: the evidence against it is no longer enough."
        state.announce("NodeExclusionLifted", text)
    state.exclusion.avoiding = found
    state.mark_status()


def _why(state: State, node: str) -> str:
    if node in state.exclusion.condemned:
        return "a rule, the node check or its slowness excludes it"
    faults = [fault for fault in state.faults.noted if fault.node == node]
    ago, last = seconds(state.now - faults[0].at), faults[-1].reason.rstrip(".")
    return f"{_incidents(state)[node]} incidents there in {ago}, and fewer on the job's other nodes; the last: {last}"


# -- no room without bad nodes ------------------------------------------------------------------------------------
def note_room(state: State, member: Member, pod: PodSeen) -> None:
    """Notes whether a pod that avoids nodes finds room."""
    if not pod.unschedulable or not member.avoid:
        state.deadlines.cancel(("no room", member.id))
    elif state.deadlines.at(("no room", member.id)) is None:
        state.deadlines.set(("no room", member.id), state.now + NO_ROOM_PATIENCE)


def forgive(state: State, member_id: str) -> Member | None:
    """Lifts all exclusions, because a pod found no room without the bad nodes. Returns its member, to be recreated."""
    member = state.members.get(MemberId(member_id))
    if member is None or not member.unschedulable or not member.avoid or member.deleting or state.is_over:
        return None
    state.exclusion.forgiven_at, state.exclusion.avoiding = state.now, ()
    state.exclusion.condemned.clear()
    nodes = ", ".join(member.avoid)
    what = "A bad node is better than none, so its pod is recreated without that restriction."
    text = f"{member.id} finds no room outside {nodes}. {what}"
    state.announce("NodeExclusionLifted", text, member.id, warning=True)
    state.mark_status()
    return member
