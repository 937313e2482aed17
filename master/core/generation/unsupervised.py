"""Who may train without a master: no generation forms beside them, because two worlds would write to one checkpoint.

They are strangers, whose sidecars hold another master's key (`membership.key_mismatch`), and members whose command may
begin by itself before they have been heard (`unreached`).
"""

from __future__ import annotations

from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member

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
