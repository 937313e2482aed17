"""Decides which members must pass the node check before they may train, if the job has one.

Each new member must pass it once. A member is checked again if its node has shown two incidents, or if another module
has evidence against it and calls `ask`. A member is not checked before every restart: a check costs seconds, and a
crash says little about a machine. A requested check takes place before the member's next generation; it does not stop
the present one.
"""

from __future__ import annotations

from outrider.master.core.faults import node_exclusion
from outrider.master.core.generation import readiness
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import FaultNoted, MemberAdded, SpecEdited

NEW = "it is new"


def note_new(state: State, added: MemberAdded) -> None:
    """Requires a check of a new member. A check by an earlier master still holds for the same pod."""
    member = state.members.get(added.member)
    if member is None:
        return
    uid, finding = state.nodecheck.checked.get(member.id, (None, None))
    if member.uid is not None and uid == member.uid:
        member.finding = finding
    elif state.spec.node_check:
        member.check_wanted = NEW
        readiness.refresh(state, member)


def ask(state: State, member: Member, why: str) -> bool:
    """Requires a check because of evidence. False if the job has no node check, or a check is due already."""
    if not state.spec.node_check or member.check_wanted:
        return False
    member.check_wanted = why
    text = f"{member.id} will be checked before its next generation: {why}."
    state.announce("NodeCheckRequested", text, member.id)
    readiness.refresh(state, member)
    return True


def note_fault(state: State, noted: FaultNoted) -> None:
    """After a second incident of a node, its members are checked."""
    node = noted.node
    if not node or not state.spec.node_check:
        return
    incidents = node_exclusion.incidents_on(state, node)
    if incidents < node_exclusion.INCIDENTS:
        return
    for member in [m for _id, m in sorted(state.members.items()) if m.node == node and m.is_usable]:
        ask(state, member, f"node {node} has had {incidents} incidents")


def edited(state: State, _edited: SpecEdited) -> None:
    """The user may have switched the node check off."""
    if state.spec.node_check:
        return
    for member in [m for _id, m in sorted(state.members.items()) if m.check_wanted]:
        member.check_wanted = ""
        readiness.refresh(state, member)
