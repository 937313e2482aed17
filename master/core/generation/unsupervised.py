"""Members that may train unsupervised: no generation forms beside them, as both would write to one checkpoint.

These are strangers, whose sidecars hold another master's key (`membership.key_mismatch`), and members whose command may
start by itself before their sidecar has reached the master (`unreached`).
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member

NAMED = 5
GRACE = 30.0
"""Seconds of grace for a stranger at the end of its job: its sidecar receives no order, so it gets SIGTERM alone."""


def in_the_way(state: State) -> list[Member]:
    members = (state.members[member_id] for member_id in sorted(state.membership.strangers))
    there = [m for m in members if m.pod_phase in ("running", "terminating") and not (m.has_ended or m.was_idle)]
    return there + _about_to_begin(state)


def _about_to_begin(state: State) -> list[Member]:
    """Members whose command may soon start unsupervised; they block the first generation."""
    if state.number:
        return []
    return [m for each in sorted(state.membership.unbound) if may_begin(m := state.members[each]) and not m.is_stranger]


def may_begin(member: Member) -> bool:
    is_there = member.pod_phase in ("pending", "running", "terminating") and not member.has_ended
    return bool(member.alone_after) and not member.is_bound and is_there


# -- words --------------------------------------------------------------------------------------------------------
def sentence(members: Sequence[Member]) -> str:
    """Names the members that block a generation, one sentence for each kind of them."""
    kinds = (
        (_of_another_key, [m for m in members if m.is_stranger and not m.runs_alone]),
        (_let_go, [m for m in members if m.runs_alone]),
        (_unheard, [m for m in members if not m.is_stranger]),
    )
    return " ".join(describe(those) for describe, those in kinds if those)


def _named(members: Sequence[Member]) -> str:
    names = ", ".join(m.id for m in members[:NAMED])
    return f"{names} and {len(members) - NAMED} more" if len(members) > NAMED else names


def _let_go(members: Sequence[Member]) -> str:
    return (
        f"{_named(members)} reached no master in time and {'runs' if len(members) == 1 else 'run'} unsupervised, so no "
        f"generation forms. Recreate such pods once they can reach this master: then they are supervised."
    )


def _unheard(members: Sequence[Member]) -> str:
    return (
        f"waiting for {_named(members)}: until a pod's sidecar reaches this master, its command may start "
        f"unsupervised, so no generation forms"
    )


def _of_another_key(members: Sequence[Member]) -> str:
    names = ", ".join(m.id for m in members[:NAMED])
    more = f" and {len(members) - NAMED} more" if len(members) > NAMED else ""
    were, have, these = ("was", "has", "this pod") if len(members) == 1 else ("were", "have", "these pods")
    recreated = "a pod that its controller recreates" if all(m.has_controller for m in members) else "a recreated pod"
    return (
        f"{names}{more} {were} created for another Outrider installation and {have} the key of its master: training "
        f"in {these} continues unsupervised, so no generation forms. Delete or restart {these}; {recreated} "
        f"gets the key of this installation."
    )
