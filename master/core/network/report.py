"""Sentences about links between members, and their part of the status."""

from __future__ import annotations

from statistics import median
from typing import Any

from outrider.master.core.network import link_health
from outrider.master.core.state.job import State
from outrider.master.core.state.links import Cut, Slow
from outrider.master.core.state.member import Member
from outrider.master.core.text import seconds
from outrider.wire.ids import MemberId


def cut_sentence(state: State, cut: Cut) -> str:
    """Describes a broken link, without a full stop: it becomes part of another sentence."""
    first, second, took = where(state, cut.first), where(state, cut.second), seconds(state.now - cut.since)
    if not cut.is_both:
        return f"{first} has not reached {second} for {took}, though {cut.second} reaches {cut.first}"
    others = " and other members reach each of them" if state.world is not None and len(state.world.places) > 2 else ""
    found = f"neither has reached the other for {took}, though the master hears both{others}"
    return f"{first} and {second} cannot reach each other: {found}"


def slow_sentence(state: State, slow: Slow) -> str:
    """Describes a slow or lossy link, or all links of a member, without a full stop."""
    names = " and ".join(where(state, member) for member in slow.members)
    whose = f"The links of {names} are" if len(slow.members) == 1 else f"The link between {names} is"
    loss = f"{slow.loss:.0%} of the probes are lost"
    if slow.round_trip < slow.usual + link_health.SLOW_BY:
        return f"{whose} lossy: {loss}"
    trip = f"a round trip takes {milliseconds(slow.round_trip)}, while the job's other links take"
    return f"{whose} slow: {trip} {milliseconds(slow.usual)}" + (
        f", and {loss}" if slow.loss >= link_health.LOSSY else ""
    )


def where(state: State, member: MemberId) -> str:
    found = state.members.get(member)
    return f"{member} (node {found.node})" if found is not None and found.node else str(member)


def milliseconds(value: float) -> str:
    return f"{1000 * value:.1f} ms"


# -- the status ---------------------------------------------------------------------------------------------------
def document(state: State) -> dict[str, Any]:
    """The part of the status: the links that are down or slow now."""
    return {
        "round_trip_ms": _in_ms(state.links.usual),
        "down": [
            {"members": list(cut.pair), "both_ways": cut.is_both, "seconds": round(state.now - cut.since, 1),
             "reason": f"{cut_sentence(state, cut)}."}
            for _pair, cut in sorted(state.links.reported.items())
        ],
        "slow": [
            {"members": list(slow.members), "round_trip_ms": _in_ms(slow.round_trip), "loss": round(slow.loss, 3),
             "reason": f"{slow_sentence(state, slow)}."}
            for _members, slow in sorted(state.links.slow.items())
        ],
    }  # fmt: skip


def of_member(state: State, member: Member) -> dict[str, Any]:
    """The median round trip of a member's links, and the share of its probes that were lost."""
    rows = state.links.rows.get(member.id)
    fresh = [row for row in rows.values() if state.now - row.at < link_health.FRESH and row.sent] if rows else []
    if not fresh:
        return {"round_trip_ms": None, "loss": None}
    loss = sum(row.lost for row in fresh) / sum(row.sent for row in fresh)
    return {"round_trip_ms": _in_ms(median(row.round_trip for row in fresh)), "loss": round(loss, 3)}


def _in_ms(value: float) -> float:
    return round(1000 * value, 2)
