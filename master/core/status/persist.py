"""What one master leaves to the next: written under `saved` in each status, read at the start.

It must hold everything that a decision depends on and that no pod and no Hello reports again. Durable fields of the
State are declared as such (`state.durability`). The code below adds what is derived from members and generations; the
next master finds those by itself and only needs hints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from outrider.master.core.account import goodput
from outrider.master.core.events import Began
from outrider.master.core.generation import reservations
from outrider.master.core.hangs import limits as hangs_limits
from outrider.master.core.state import durability
from outrider.master.core.state.durability import Clock
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import STOPPING, State
from outrider.master.core.state.member import SILENT, Member, in_order
from outrider.master.core.state.nodecheck import Finding
from outrider.master.core.state.scaling import Metrics


# -- writing ------------------------------------------------------------------------------------------------------
def saved(state: State) -> dict[str, object]:
    """What the next master needs, with moments as unix times, because another process has another clock."""
    kept = durability.written(state, _clock(state))
    if not state.number_before:
        del kept["number_before"]
    return kept | {
        "term": state.term,
        "stage": state.stage,
        "metrics": [state.spec.metrics_pattern, *durability.write(Metrics, state.metrics, _clock(state))],
        "scaling": kept["scaling"] if state.spec.scaling else None,
        "steps_repeated": state.all_repeated,
        "met": {member: port for member, port in kept["met"].items() if member in state.members},
        **_members(state),
        "account": goodput.saved(state),
        "world": None if state.stage == STOPPING else _world(state, state.world),
        "left": _world(state, state.world if state.stage == STOPPING else state.left),
        "reserved": [state.term, reservations.up_to(state)],
        "ended": [state.phase, state.exit_code] if state.is_over else None,
    }


def _clock(state: State) -> Clock:
    return Clock(state.now, state.unix_offset)


def _members(state: State) -> dict[str, object]:
    """The job's members, and what is known of each."""
    members, offset = sorted(state.members.values(), key=in_order), state.unix_offset
    return {
        "members": {str(m.id): [m.uid, m.rank_index, m.own_index] for m in members},
        "addresses": {str(m.id): [m.uid, m.address, m.probe_port] for m in members if m.address},
        "silent": {str(m.id): [m.uid, m.heard_at + offset] for m in members if m.life == SILENT},
        "checked": {str(m.id): [m.uid, *_measured(m)] for m in members if _is_checked(state, m)},
    }


def _is_checked(state: State, member: Member) -> bool:
    return state.spec.node_check and not member.check_wanted and member.uid is not None


def _measured(member: Member) -> tuple[str, float, float]:
    found = member.finding or Finding("ok")
    return (found.kind, round(found.compute, 4), round(found.network, 4))


def _world(state: State, world: World | None) -> dict[str, object] | None:
    if world is None:
        return None
    return {
        "generation": [world.generation.term, world.generation.number],
        "places": [asdict(place) for place in world.places.values()],
        "address": world.address,
        "port": world.port,
        "world_size": world.world_size,
        "made_step": world.made_step,
        "recovered": world.recovered,
        "counts_from": world.resume.counts_from,
        **({} if state.hangs.watch is None or state.hangs.watch.generation != world.generation else
           {"progress": hangs_limits.saved_watch(state.hangs.watch, state.hangs.pace, state.spec, state.now,
                                                 state.unix_offset)}),
    }  # fmt: skip


# -- taking over --------------------------------------------------------------------------------------------------
def begin(state: State, event: Began) -> bool:
    """Sets up the state; True if an earlier master left a job that continues.

    A job that is started again after its end (docs/adr/0036) continues only its numbers.
    """
    state.term, state.spec, state.target = event.term, event.spec, event.spec.replicas
    state.unix_offset = event.unix_time - state.now
    state.began_at = state.began_now = state.membership.deaf_until = state.faults.restarts.since = state.now
    state.account.wall_at = state.now
    state.earlier.is_left = event.is_left
    kept = event.saved.get("saved") if event.saved is not None else None
    if not isinstance(kept, dict):
        return False
    is_after_end = bool(kept.get("anew"))
    durability.restore(state, _with_pods(kept), _clock(state), after_end=is_after_end)
    state.status.saved_version = state.status.version
    if is_after_end:
        state.number_before = state.number
        return False
    goodput.restore(state, kept.get("account") or {})
    pattern, *values = kept.get("metrics") or [""]
    if values and pattern == state.spec.metrics_pattern:
        state.metrics = durability.read(Metrics, values, _clock(state))
    return True


def _with_pods(saved: Mapping[str, Any]) -> dict[str, Any]:
    """What was saved, without members whose pods no master has seen."""
    seen = {key: {member: row for member, row in saved.get(key, {}).items() if row[0] is not None}
            for key in ("members", "silent")}  # fmt: skip
    return {**saved, **seen}
