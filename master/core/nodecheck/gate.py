"""Who has to pass the node check before it may train (again), where the job wants one.

Every member once, when it is new; and one whose node has shown two faults, or of which somebody else has evidence:
`ask` is the way in. A member is not checked before every restart: it costs seconds, and a crash says little about a
machine. What is asked for takes effect before the member's next generation; it does not stop the present one.
"""

from __future__ import annotations

from outrider.master.core.faults import node_exclusion
from outrider.master.core.generation import readiness
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import FaultNoted, MemberAdded, SpecEdited

NEW = "it is new"


def note_new(state: State, added: MemberAdded) -> None:
    """Made or seen for the first time. An earlier master's check holds for the same pod."""
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
    """There is evidence against the machine of this member. False where the job wants no checks, or one is due."""
    if not state.spec.node_check or member.check_wanted:
        return False
    member.check_wanted = why
    text = f"{member.id} is checked before it trains in another generation: {why}."
    state.announce("NodeCheckRequested", text, member.id)
    readiness.refresh(state, member)
    return True


def note_fault(state: State, noted: FaultNoted) -> None:
    """The second fault that speaks against a node calls for a check of who runs there."""
    node = noted.node
    if not node or not state.spec.node_check:
        return
    incidents = node_exclusion.incidents_on(state, node)
    if incidents < node_exclusion.INCIDENTS:
        return
    for member in [m for _id, m in sorted(state.members.items()) if m.node == node and m.is_usable]:
        ask(state, member, f"node {node} has shown {incidents} faults")


def edited(state: State, _edited: SpecEdited) -> None:
    """The user may want no checks any more."""
    if state.spec.node_check:
        return
    for member in [m for _id, m in sorted(state.members.items()) if m.check_wanted]:
        member.check_wanted = ""
        readiness.refresh(state, member)
