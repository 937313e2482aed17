"""Which members form the next generation, or why none forms, in one sentence.

If a job waits without a generation, `of` is the one place to look. `GATES` are the reasons for waiting, in the order in
which they are reported; after them the ready members are chosen. Nothing here changes the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from outrider.master.core.generation import layout, observe_only, unsupervised
from outrider.master.core.state.job import State
from outrider.master.core.state.member import SILENT, Member, in_order
from outrider.master.core.state.nodecheck import Check
from outrider.master.core.text import counted, requested
from outrider.wire.ids import MemberId

SUSPENDED = "The job is suspended."
OWNER_SUSPENDED = "The owner of the pods is suspended."
WAITS = "is queued behind"
NONE_DESIRED = "the owner of the pods is scaled to 0; training continues when it is scaled up"
NAMED = 5


class Formation(NamedTuple):
    """The next generation."""

    members: list[Member]
    """The chosen members in the order of their ranks; empty if no generation forms."""
    reason: str
    """Why no generation forms; empty if one does."""


def of(state: State) -> Formation:
    """The next generation of a job that has none, or the first reason against it."""
    for gate in GATES:
        if reason := gate(state):
            return Formation([], reason)
    chosen = _chosen(state)
    reason = _too_few_fit(state, chosen) or _suspected(state, chosen)
    return Formation([] if reason else chosen, reason)


def can_form(state: State) -> bool:
    """Whether the ready members alone form a generation, without those that may still come."""
    chosen = _chosen(state) if len(state.ready) >= state.spec.min_members else []
    return bool(chosen) and not _too_few_fit(state, chosen) and not _suspected(state, chosen)


# -- reasons for waiting ------------------------------------------------------------------------------------------
def _suspended(state: State) -> str:
    return suspended(state) if state.placement.suspended else ""


def _past_the_lease(state: State) -> str:
    """Blocks a new generation without the Lease; `membership.past_lease` may still restart the last one."""
    why = "the master has lost its Lease: until it is held again, only the last generation may restart, unchanged"
    return why if state.lease.lapsed else ""


def _behind_another_job(state: State) -> str:
    return waits_behind(state, state.placement.waits_behind) if state.placement.waits_behind else ""


def _unlisted(state: State) -> str:
    return "" if state.listed else "the platform has not listed the members yet"


def _unsupervised(state: State) -> str:
    those = unsupervised.in_the_way(state)
    return unsupervised.sentence(those) if those else ""


def _too_few(state: State) -> str:
    """O(1) except for members that cannot come: this runs at each message of each starting member."""
    least, ready, can_come = state.spec.min_members, len(state.ready), len(state.ready) + len(state.coming)
    if ready >= least:
        return ""
    if state.nodecheck.check is not None:
        return measured(state.nodecheck.check)
    if is_scaled_to_zero(state):
        return NONE_DESIRED
    blocked = state.members.keys() - state.ready - state.coming
    needed, why = _needed(state), f"; {_what_blocks(state, blocked)}" if blocked else ""
    if can_come >= least:
        return f"waiting for {_named(state, state.coming)}: {needed}, {_so_many(ready)} ready{why}"
    if blocked and state.members[min(blocked)].cannot_start:
        return no_start(state, [m for m in (state.members[each] for each in blocked) if m.cannot_start])
    return f"waiting for members: {needed}, {_so_many(can_come)} available{why}"


def _needed(state: State) -> str:
    return f"a generation needs at least {counted(state.spec.min_members, 'member')}"


def _worth_waiting_for(state: State) -> str:
    """Waits for members that can come soon; not after a fault, when the survivors continue at once."""
    if not (state.patient and state.coming):
        return ""
    ready = len(state.ready)
    if ready >= state.target:  # spares do not count
        ready = sum(state.members[each].rank_index is not None for each in state.ready)
    if ready >= state.target:
        return ""
    if state.nodecheck.check is not None:
        return measured(state.nodecheck.check)
    return f"waiting for {_named(state, state.coming)}: {requested(state.target, 'member')}, {_so_many(ready)} ready"


def _observed(state: State) -> str:
    why = "the job is only observed, and processes of its last generation may still run"
    return why if observe_only.is_busy(state) else ""


def _helps_to_measure(state: State) -> str:
    """Waits while ready members help to measure a new one, which takes moments."""
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
"""Each returns its reason against a generation, or an empty text if it has none."""


# -- the chosen members -------------------------------------------------------------------------------------------
def _chosen(state: State) -> list[Member]:
    return layout.choose((state.members[i] for i in state.ready), state.indexes, state.spec.node_unit)


def _too_few_fit(state: State, chosen: list[Member]) -> str:
    if len(chosen) >= state.spec.min_members:
        return ""
    unit = f" in whole units of {state.spec.node_unit}" if state.spec.node_unit > 1 else ""
    fit = f"only {len(chosen)}" if chosen else "none"
    return f"{_needed(state)}{unit}, and {fit} of the {len(state.ready)} ready members can be in it"


def _suspected(state: State, chosen: list[Member]) -> str:
    suspected = [member.id for member in chosen if member.id in state.membership.suspected]
    if not suspected:
        return ""
    are = "is" if len(suspected) == 1 else "are"
    return f"{_named(state, suspected)} {are} silent: no generation starts before the cause is known"


# -- words --------------------------------------------------------------------------------------------------------
def suspended(state: State) -> str:
    """Whether the user or the owner has suspended the job, in a sentence."""
    return SUSPENDED if state.placement.suspend_wanted else OWNER_SUSPENDED


def waits_behind(state: State, behind: str) -> str:
    return f"{WAITS} {neighbour(state, behind)}, which is older and lacks room too"


def neighbour(state: State, job: str) -> str:
    """The name of another job, but not of one in another namespace, whose names are private."""
    is_near = job.partition("/")[0] == str(state.spec.name).partition("/")[0]
    return job if is_near else "a job of another namespace"


def is_scaled_to_zero(state: State) -> bool:
    """Whether the owner wants no pods and has removed all of them."""
    wants_none = state.spec.is_adopted and state.placement.owner.size == 0
    return wants_none and not any(member.is_usable for member in state.members.values())


def no_start(state: State, blocked: list[Member]) -> str:
    """Why too few members can start, with the first of those that cannot."""
    first = min(blocked, key=lambda member: member.id)
    return (
        f"no generation can form: {counted(len(blocked), 'member')} cannot start, and a generation "
        f"needs {counted(state.spec.min_members, 'member')}; {first.id}: {first.pod_reason}"
    )


def measured(check: Check) -> str:
    """The present round of a node check, in a few words."""
    count = sum(map(len, check.groups))
    return f"check round {check.number}: {counted(count, 'member')} measured" if count else "a node check starts"


def _what_blocks(state: State, blocked: set[MemberId]) -> str:
    """The first member that cannot take part, and why.

    The platform's own reason stands by itself, as in the status of an ElasticJob, which then does not repeat it.
    """
    first = state.members[min(blocked)]
    more = f" (and {len(blocked) - 1} more)" if len(blocked) > 1 else ""
    if (first.unschedulable or first.cannot_start) and first.pod_reason:
        return f"{first.id}: {first.pod_reason}{more}"
    return f"{first.id} {_why_blocked(first)}{more}"


def _why_blocked(member: Member) -> str:
    if member.leaving:
        return f"has to leave ({member.leaving})"
    if member.deleting or member.pod_phase == "terminating":
        return "is being deleted"
    if member.unschedulable:
        return "cannot be scheduled"
    if member.cannot_start:
        return "cannot start"
    if member.life == SILENT:
        return "is silent"
    if member.sidecar_ended:
        return "has lost its sidecar"
    return "was not ready in time" if member.overdue else "cannot take part"


def _named(state: State, members: Iterable[MemberId]) -> str:
    those = list(members)
    if len(those) > NAMED:
        return counted(len(those), "member")
    return ", ".join(m.id for m in sorted((state.members[each] for each in those), key=in_order))


def _so_many(count: int) -> str:
    return f"{count} are" if count > 1 else "1 is" if count else "none is"
