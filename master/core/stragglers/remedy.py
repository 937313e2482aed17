"""Reports a member that is slow during training, and replaces it if the user wants that.

A replacement changes the members of the generation, so the slow member continues training until its replacement is
ready (or, if fewer members are enough, until the next checkpoint). A rank index is replaced for this reason once: if
its next member is slow too, the machine is not the cause. A pod of another controller is deleted, because only its
owner creates another one.
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
    """Takes the windows of a report. O(its windows), except for the report that completes a window."""
    world = state.world
    if not report.own or world is None or state.stage != RUNNING or report.generation != world.generation:
        return
    if member.id in world.places:
        for named in take(world.comparison, member.id, report.own, world.world_size):
            if named.is_over:
                _over(state, named)
            else:
                _announce(state, world, named)


def _announce(state: State, world: World, named: Named) -> None:
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
        text = (
            f"{member.id} is no longer a straggler: it takes {named.pace.factor:.2f} times the others' own time a step."
        )
        state.announce("StragglerRecovered", text, member.id)
        state.mark_status()


# -- replacing it -------------------------------------------------------------------------------------------------
def _replace(state: State, member: Member, reason: str) -> None:
    index = member.rank_index
    if index is None or member.leaving or member.deleting:
        return
    why_not = _why_not(state, member)
    if why_not:
        state.announce("StragglerNotReplaced", f"{member.id} is slow but is not replaced: {why_not}.", member.id)
        return
    state.slow_replaced.add(index)
    node_exclusion.condemn(state, member.node, reason)
    if state.spec.is_adopted:
        delete_pod.dismiss(state, member, f"{reason} Its controller creates another pod.")
    else:
        scaling_resize.leave_when_replaced(state, member, "it is a straggler, and the job replaces stragglers")


def _why_not(state: State, member: Member) -> str:
    if member.rank_index in state.slow_replaced:
        return f"the member before it at rank index {member.rank_index} was slow too, so the machine is not the cause"
    if not member.has_controller or member.uid is None:
        return "no controller would create its pod again"
    if not state.spec.is_adopted and not replicas.may_replace(state, member):
        return "no replacement is allowed"
    return ""
