"""What is done about a member that is slow while training. The user is always told, and it is replaced only if he asks.

To replace it costs a change of the world, so it trains on until its replacement is ready (or, where fewer members are
enough, until the next checkpoint). A rank index is replaced for this once: where its next member is slow too, it is not
the machine. A pod of another controller is deleted, because only its owner makes another one.
"""

from __future__ import annotations

from outrider.master.core.faults import delete_pod, node_exclusion
from outrider.master.core.placement import replicas
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.stragglers import Named
from outrider.master.core.stragglers import cause as stragglers_cause
from outrider.master.core.stragglers import report as stragglers_report
from outrider.master.core.stragglers.detector import take
from outrider.wire.messages.report import Report


def note_report(state: State, member: Member, report: Report) -> None:
    """O(its windows), but for the report that completes a window."""
    world = state.world
    if not report.own or world is None or state.stage != RUNNING or report.generation != world.generation:
        return
    if member.id in world.places:
        for named in take(world.comparison, member.id, report.own, world.world_size):
            if named.is_over:
                _over(state, named)
            else:
                _tell(state, world, named)


def _tell(state: State, world: World, named: Named) -> None:
    member = state.members.get(named.member)
    if member is None:
        return
    reason, pace, cause = stragglers_report.sentence(world, member, named), named.pace, stragglers_cause.of(named.pace)
    detail = (
        ("factor", f"{pace.factor:.2f}"),
        ("own_seconds", f"{pace.own:.4f}"),
        ("others_seconds", f"{pace.others:.4f}"),
        ("cause", cause.kind),
    )
    state.announce("Straggler", reason, member.id, warning=True, detail=detail)
    state.mark_status()
    if state.spec.exclude_stragglers:
        _replace(state, member, reason)


def _over(state: State, named: Named) -> None:
    member = state.members.get(named.member)
    if member is not None:
        text = f"{member.id} is no straggler any more: {named.pace.factor:.2f} times the others' own time a step."
        state.announce("StragglerRecovered", text, member.id)
        state.mark_status()


# -- replacing it -------------------------------------------------------------------------------------------------
def _replace(state: State, member: Member, reason: str) -> None:
    index = member.rank_index
    if index is None or member.leaving or member.deleting:
        return
    why_not = _why_not(state, member)
    if why_not:
        state.announce("StragglerNotReplaced", f"{member.id} is not replaced, though it is slow: {why_not}.", member.id)
        return
    state.slow_replaced.add(index)
    node_exclusion.condemn(state, member.node, reason)
    if state.spec.is_adopted:
        delete_pod.dismiss(state, member, f"{reason} Its controller makes another.")
    else:
        scaling_resize.leave_when_replaced(state, member, "it is a straggler, and stragglers are to be replaced")


def _why_not(state: State, member: Member) -> str:
    if member.rank_index in state.slow_replaced:
        return f"the member that held rank index {member.rank_index} before it was slow too, so it is not the machine"
    if not member.has_controller or member.uid is None:
        return "no controller would make its pod again"
    if not state.spec.is_adopted and not replicas.may_replace(state, member):
        return "no replacement is allowed"
    return ""
