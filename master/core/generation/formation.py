"""Which members form the next generation; or, where none forms, why not, in one sentence.

`of` is the one place to look where a job stands still without a world. `GATES` are the reasons for waiting, in the
order in which they are told; behind them the ready members are chosen. Nothing here changes the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from outrider.master.core.generation import layout, observe_only, unsupervised
from outrider.master.core.state.job import State
from outrider.master.core.state.member import SILENT, Member, in_order
from outrider.master.core.state.nodecheck import Check
from outrider.master.core.text import counted, wanted
from outrider.wire.ids import MemberId

SUSPENDED = "The job is suspended."
OWNER_SUSPENDED = "The owner of the pods is suspended."
WAITS = "waits for room behind"
NONE_WANTED = "the owner of the pods wants none; training goes on when it wants some again"
NAMED = 5


class Formation(NamedTuple):
    """The next generation."""

    members: list[Member]
    """In the order of their ranks; nobody where none forms."""
    reason: str
    """Why none forms; else empty."""


def of(state: State) -> Formation:
    """Of a job without a world."""
    for gate in GATES:
        if reason := gate(state):
            return Formation([], reason)
    chosen = _chosen(state)
    reason = _too_few_fit(state, chosen) or _in_doubt(state, chosen)
    return Formation([] if reason else chosen, reason)


def can_form(state: State) -> bool:
    """The ready alone make a world, whoever else may come."""
    chosen = _chosen(state) if len(state.ready) >= state.spec.min_members else []
    return bool(chosen) and not _too_few_fit(state, chosen) and not _in_doubt(state, chosen)


# -- reasons for waiting ------------------------------------------------------------------------------------------
def _suspended(state: State) -> str:
    return suspended(state) if state.placement.suspended else ""


def _past_the_lease(state: State) -> str:
    """`membership.past_lease` may start one."""
    why = "the master's Lease has lapsed: until it holds it again, only the last world may begin, as it was"
    return why if state.lease.lapsed else ""


def _behind_another_job(state: State) -> str:
    return waits_behind(state, state.placement.waits_behind) if state.placement.waits_behind else ""


def _unlisted(state: State) -> str:
    return "" if state.listed else "the platform has not told yet which members there are"


def _unsupervised(state: State) -> str:
    those = unsupervised.in_the_way(state)
    return unsupervised.sentence(those) if those else ""


def _too_few(state: State) -> str:
    """O(1) but for who cannot come: this is asked at each message of each member that comes."""
    least, ready, can_come = state.spec.min_members, len(state.ready), len(state.ready) + len(state.coming)
    if ready >= least:
        return ""
    if state.nodecheck.check is not None:
        return measured(state.nodecheck.check)
    if is_nobody_wanted(state):
        return NONE_WANTED
    held = state.members.keys() - state.ready - state.coming
    needed, why = f"a world needs {counted(least, 'member')}", f"; {_who_is_held(state, held)}" if held else ""
    if can_come >= least:
        return f"waiting for {_named(state, state.coming)}: {needed}, and {_so_many(ready)} ready{why}"
    if held and state.members[min(held)].cannot_start:
        return no_start(state, [m for m in (state.members[each] for each in held) if m.cannot_start])
    return f"waiting for members: {needed}, and {_so_many(can_come)} there{why}"


def _worth_waiting_for(state: State) -> str:
    """Not after a fault: the survivors go on at once then."""
    if not (state.patient and state.coming):
        return ""
    ready = len(state.ready)
    if ready >= state.target:  # spares do not count
        ready = sum(state.members[each].rank_index is not None for each in state.ready)
    if ready >= state.target:
        return ""
    if state.nodecheck.check is not None:
        return measured(state.nodecheck.check)
    return f"waiting for {_named(state, state.coming)}: {wanted(state.target, 'member')}, and {_so_many(ready)} ready"


def _observed(state: State) -> str:
    why = "the job is only observed, and something of its last world may still run"
    return why if observe_only.is_busy(state) else ""


def _helps_to_measure(state: State) -> str:
    """Some of the ready help to measure a new one: moments."""
    check = state.nodecheck.check
    return measured(check) if check is not None and check.helpers and not check.training else ""


GATES: tuple[Callable[[State], str], ...] = (
    _suspended,
    _past_the_lease,
    _behind_another_job,
    _unlisted,
    _unsupervised,
    _too_few,
    _worth_waiting_for,
    _observed,
    _helps_to_measure,
)
"""Each gives a sentence, or none where it has nothing against a world."""


# -- who is chosen ------------------------------------------------------------------------------------------------
def _chosen(state: State) -> list[Member]:
    return layout.choose((state.members[i] for i in state.ready), state.indexes, state.spec.node_unit)


def _too_few_fit(state: State, chosen: list[Member]) -> str:
    if len(chosen) >= state.spec.min_members:
        return ""
    unit = f" in whole units of {state.spec.node_unit}" if state.spec.node_unit > 1 else ""
    needed = f"a world needs {counted(state.spec.min_members, 'member')}{unit}"
    return f"{needed}, and of {len(state.ready)} that are ready {len(chosen) or 'none'} can be in it"


def _in_doubt(state: State, chosen: list[Member]) -> str:
    doubted = [member.id for member in chosen if member.id in state.membership.doubted]
    if not doubted:
        return ""
    are = "is" if len(doubted) == 1 else "are"
    return f"{_named(state, doubted)} {are} not heard: no world begins before it is known why"


# -- words --------------------------------------------------------------------------------------------------------
def suspended(state: State) -> str:
    """By whom."""
    return SUSPENDED if state.placement.suspend_wanted else OWNER_SUSPENDED


def waits_behind(state: State, behind: str) -> str:
    return f"{WAITS} {neighbour(state, behind)}, which is older and lacks room too"


def neighbour(state: State, job: str) -> str:
    """Names of other namespaces are nobody's business."""
    is_near = job.partition("/")[0] == str(state.spec.name).partition("/")[0]
    return job if is_near else "a job of another namespace"


def is_nobody_wanted(state: State) -> bool:
    """The owner wants no pods and has taken them all."""
    wants_none = state.spec.is_adopted and state.placement.owner.size == 0
    return wants_none and not any(member.is_usable for member in state.members.values())


def no_start(state: State, held: list[Member]) -> str:
    """Pods cannot start, and without them there are too few."""
    first = min(held, key=lambda member: member.id)
    return (
        f"no world can form: {counted(len(held), 'member')} cannot start and {state.spec.min_members} are needed; "
        f"{first.id}: {first.pod_reason}"
    )


def measured(check: Check) -> str:
    """Its present round."""
    count = sum(map(len, check.groups))
    return f"check round {check.number}: {counted(count, 'member')} measured" if count else "a node check begins"


def _who_is_held(state: State, held: set[MemberId]) -> str:
    """The first of those whom nobody waits for, and why. What the platform says of it stands by itself, as in the
    status of an ElasticJob, so that it is not said twice there."""
    first = state.members[min(held)]
    more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
    if (first.unschedulable or first.cannot_start) and first.pod_reason:
        return f"{first.id}: {first.pod_reason}{more}"
    return f"{first.id} {_why_held(first)}{more}"


def _why_held(member: Member) -> str:
    if member.leaving:
        return f"has to leave ({member.leaving})"
    if member.deleting or member.pod_phase == "terminating":
        return "is being deleted"
    if member.unschedulable:
        return "finds no room"
    if member.cannot_start:
        return "cannot start"
    if member.life == SILENT:
        return "is not heard"
    if member.sidecar_ended:
        return "has no sidecar any more"
    return "was not ready in time" if member.overdue else "cannot take part"


def _named(state: State, members: Iterable[MemberId]) -> str:
    those = list(members)
    if len(those) > NAMED:
        return counted(len(those), "member")
    return ", ".join(m.id for m in sorted((state.members[each] for each in those), key=in_order))


def _so_many(count: int) -> str:
    return f"{count} are" if count > 1 else "1 is" if count else "none is"
