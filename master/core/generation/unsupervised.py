"""Who may train without a master: no generation forms beside them, because two worlds would write to one checkpoint.

They are strangers, whose sidecars hold another master's key (`membership.key_mismatch`), and members whose command may
begin by itself before they have been heard (`unreached`).
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member

NAMED = 5
GRACE = 30.0
"""Seconds for a stranger whose job its user ends: its sidecar is not told, and SIGTERM is all that it gets."""


def in_the_way(state: State) -> list[Member]:
    members = (state.members[member_id] for member_id in sorted(state.membership.strangers))
    there = [m for m in members if m.pod_phase in ("running", "terminating") and not (m.has_ended or m.was_idle)]
    return there + _about_to_begin(state)


def _about_to_begin(state: State) -> list[Member]:
    """Who keeps the first generation from being formed."""
    if state.number:
        return []
    return [m for each in sorted(state.membership.unbound) if may_begin(m := state.members[each]) and not m.is_stranger]


def may_begin(member: Member) -> bool:
    is_there = member.pod_phase in ("pending", "running", "terminating") and not member.has_ended
    return bool(member.alone_after) and not member.is_bound and is_there


# -- words --------------------------------------------------------------------------------------------------------
def sentence(members: Sequence[Member]) -> str:
    """Of all that are in the way, by what they are."""
    kinds = (
        (_of_another_key, [m for m in members if m.is_stranger and not m.runs_alone]),
        (_let_go, [m for m in members if m.runs_alone]),
        (_unheard, [m for m in members if not m.is_stranger]),
    )
    return " ".join(said(those) for said, those in kinds if those)


def _named(members: Sequence[Member]) -> str:
    names = ", ".join(m.id for m in members[:NAMED])
    return f"{names} and {len(members) - NAMED} more" if len(members) > NAMED else names


def _let_go(members: Sequence[Member]) -> str:
    return (
        f"{_named(members)} had reached no master in time and {'runs' if len(members) == 1 else 'run'} unsupervised, "
        f"and no generation forms beside that; made anew while this master is reached, pods are supervised."
    )


def _unheard(members: Sequence[Member]) -> str:
    return (
        f"waiting for {_named(members)}: as long as its sidecar has not been heard, its command may begin by itself, "
        f"and no generation forms beside that"
    )


def _of_another_key(members: Sequence[Member]) -> str:
    names = ", ".join(m.id for m in members[:NAMED])
    more = f" and {len(members) - NAMED} more" if len(members) > NAMED else ""
    were, have, these = ("was", "has", "this pod") if len(members) == 1 else ("were", "have", "these pods")
    again = "what its controller makes anew has" if all(m.has_controller for m in members) else "made anew it has"
    return (
        f"{names}{more} {were} made for another installation of Outrider and {have} the key of its master: what runs "
        f"there trains on unsupervised, and no generation forms beside it; delete or restart {these}, {again} the key "
        f"of this one."
    )
