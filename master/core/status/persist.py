"""What one master leaves to the next: written with each status under `saved`, and taken over at the start.

Whatever a decision depends on that no pod and no Hello says again must be here. What is missing keeps its default, so
that a master may follow an older one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from outrider.master.core.generation import reservations
from outrider.master.core.hangs import limits as hangs_limits
from outrider.master.core.scaling import curve as scaling_curve
from outrider.master.core.scaling import log_metric_values
from outrider.master.core.spec import JobSpec, rule_of
from outrider.master.core.state.generation import Fault, World
from outrider.master.core.state.job import STOPPING, Budget, DataNote, FailedPod, Flag, State
from outrider.master.core.state.member import SILENT, Member, Placed, in_order
from outrider.master.core.state.nodecheck import Finding
from outrider.wire.ids import Generation, MemberId, PodUid, RankIndex, Role

PRINTS_SAVED = 64


# -- writing ------------------------------------------------------------------------------------------------------
def saved(state: State) -> dict[str, object]:
    """Moments as unix times, because another process has another clock."""
    return {
        "term": state.term,
        "number": state.number,
        **({"number_before": state.number_before} if state.number_before else {}),
        "target": state.target,
        "stage": state.stage,
        "began_at": state.began_at + state.unix_offset,
        "version": state.version,
        "owner_size": state.owner.size,
        "owner_suspended": state.owner.suspended,
        "metrics": log_metric_values.saved(state.metrics, state.spec.metrics_pattern, state.unix_offset),
        "scaling": scaling_curve.saved(state.scaling, state.unix_offset) if state.spec.scaling else None,
        **_members(state),
        **_replacements(state),
        **_nodes(state),
        **_rules(state),
        **_faults(state),
        **_progress(state),
        "world": None if state.stage == STOPPING else _world(state, state.world),
        "left": _world(state, state.world if state.stage == STOPPING else state.left),
        "reserved": [state.term, reservations.up_to(state)],
        "ended": [state.phase, state.exit_code] if state.is_over else None,
    }


def _members(state: State) -> dict[str, object]:
    """Who there was, and what was known of each."""
    members, offset = sorted(state.members.values(), key=in_order), state.unix_offset
    return {
        "next_id": {str(role): number for role, number in sorted(state.next_id.items())},
        "members": {str(m.id): [m.uid, m.rank_index, m.own_index] for m in members},
        "addresses": {str(m.id): [m.uid, m.address, m.probe_port] for m in members if m.address},
        "silent": {str(m.id): [m.uid, m.heard_at + offset] for m in members if m.life == SILENT},
        "met": {str(i): [g.term, g.number, port] for i, (g, port) in sorted(state.met.items()) if i in state.members},
        "checked": {str(m.id): [m.uid, *_measured(m)] for m in members if _is_checked(state, m)},
        "rounds": state.rounds,
        "round_number": state.round_number,
        "exclusions": {str(index): times for index, times in sorted(state.exclusions.items())},
    }


def _replacements(state: State) -> dict[str, object]:
    """What pods were made and have failed, and what the next one of a rank index needs."""
    offset = state.unix_offset
    return {
        "held": sorted(state.held),
        "spares_made": state.spares_made,
        "relaunches": state.relaunches,
        "failed_relaunches": {str(k): [b.used, b.since + offset] for k, b in sorted(state.failed_relaunches.items())},
        "failures": {str(k): count for k, count in sorted(state.failures.items())},
        "failed_pods": {str(m): [kept.uid, kept.rank_index, kept.taken]
                        for m, kept in sorted(state.failed_pods.items())},
        "memory": {str(index): needed for index, needed in sorted(state.memory.items())},
        "slow_replaced": sorted(state.slow_replaced),
        "parted": {str(index): at + offset for index, at in sorted(state.parted.items())},
    }  # fmt: skip


def _nodes(state: State) -> dict[str, object]:
    """What speaks against nodes."""
    offset = state.unix_offset
    return {
        "avoiding": list(state.avoiding),
        "condemned": {node: at + offset for node, at in sorted(state.condemned.items())},
        "flags": {node: [f.action, f.why, sorted(f.to_go)] for node, f in sorted(state.flags.items())},
        "forgiven_at": None if state.forgiven_at == float("-inf") else state.forgiven_at + offset,
    }


def _rules(state: State) -> dict[str, object]:
    """What the user's rules have counted."""
    offset = state.unix_offset
    return {
        "hits": [[list(rule), whose, [at + offset for at in hits]]
                 for (rule, whose), hits in sorted(state.hits.items())],
        "holding": [[node, list(rule), is_met] for (node, rule), is_met in sorted(state.holding.items())],
        "log_serials": dict(sorted(state.log_serials.items())),
        "dropped_patterns": sorted(state.dropped_patterns),
    }  # fmt: skip


def _faults(state: State) -> dict[str, object]:
    offset = state.unix_offset
    return {
        "restarts": [state.restarts.used, state.restarts.since + offset],
        "same_error": list(state.same_error),
        "port_clashes": state.port_clashes,
        "faults": [[f.at + offset, f.kind, f.member, f.reason, f.generation.term, f.generation.number, f.seconds_lost,
                    f.node] for f in state.faults],
        "fault_counts": dict(sorted(state.fault_counts.items())),
        "seconds_lost": round(state.seconds_lost, 3),
    }  # fmt: skip


def _progress(state: State) -> dict[str, object]:
    """How far training has come, and at what pace."""
    offset = state.unix_offset
    return {
        "saves": [[path, step] for path, step in state.saves.items()],
        "prints": [[each, step] for each, step in list(state.prints.items())[-PRINTS_SAVED:]],
        "steps_repeated": state.all_repeated,
        "first_step": state.first_step,
        "high_step": state.high_step,
        "high_step_at": None if state.high_step_at is None else state.high_step_at + offset,
        "step_estimated": state.step_estimated,
        "high_step_generation": [state.high_step_generation.term, state.high_step_generation.number],
        "step_seconds": list(state.step_seconds)[-11:],
        "data": [state.first_world, state.samples_repeated, [list(note) for note in state.data_notes]],
        "pace": hangs_limits.saved(state.pace, offset),
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
        **({} if state.watch is None or state.watch.generation != world.generation else
           {"progress": hangs_limits.saved_watch(state.watch, state.pace, state.spec, state.now, state.unix_offset)}),
    }  # fmt: skip


# -- taking over --------------------------------------------------------------------------------------------------
def restore(state: State, saved: Mapping[str, Any]) -> None:
    """Takes over what an earlier master wrote; what is missing keeps its default."""
    offset = state.unix_offset
    _restore_numbers(state, saved)
    state.target = int(saved.get("target", state.target))
    state.began_at = _moment(state, saved.get("began_at", state.now + offset))
    state.held = {RankIndex(index) for index in saved.get("held", ())}
    state.placed = {
        MemberId(member): _placed(*entry) for member, entry in saved.get("members", {}).items() if entry[0] is not None
    }
    state.addresses = {
        MemberId(member): (PodUid(uid), str(address), int(port))
        for member, (uid, address, port) in saved.get("addresses", {}).items()
    }
    state.silent = {
        MemberId(member): (PodUid(uid), _moment(state, heard_at))
        for member, (uid, heard_at) in saved.get("silent", {}).items()
        if uid is not None
    }
    state.spares_made = int(saved.get("spares_made", 0))
    state.relaunches = int(saved.get("relaunches", 0))
    state.failed_relaunches = {
        int(k): Budget(int(u), _moment(state, s)) for k, (u, s) in saved.get("failed_relaunches", {}).items()
    }
    _restore_replacements(state, saved)
    used, since = saved.get("restarts", (0, offset))
    state.restarts = Budget(int(used), _moment(state, since))
    text, count = saved.get("same_error", ("", 0))
    state.same_error = (str(text), int(count))
    state.port_clashes = int(saved.get("port_clashes", 0))
    state.met = {
        MemberId(member): (Generation(term, number), int(port))
        for member, (term, number, port) in saved.get("met", {}).items()
    }
    state.saved_world, state.saved_left = saved.get("world"), saved.get("left")
    term, up_to = saved.get("reserved", (0, 0))
    state.saved_numbers = (int(term), int(up_to))
    state.pace = hangs_limits.restored(saved.get("pace", {}), offset)
    _restore_progress(state, saved)


def _moment(state: State, unix_time: float) -> float:
    """In our own clock. The clock of whoever wrote it may be an hour ahead, and nothing that was written is to come."""
    return min(float(unix_time) - state.unix_offset, state.now)


def _placed(uid: str, index: int | None, own: int | None = None) -> Placed:
    return Placed(PodUid(uid), _index(index), _index(own))


def _index(value: int | None) -> RankIndex | None:
    return None if value is None else RankIndex(value)


def _restore_replacements(state: State, saved: Mapping[str, Any]) -> None:
    """What makes the next pod of a rank index another than its template."""
    state.failures = {int(key): int(count) for key, count in saved.get("failures", {}).items()}
    state.failed_pods = {
        MemberId(member): FailedPod(PodUid(uid), _index(index), *taken)
        for member, (uid, index, *taken) in saved.get("failed_pods", {}).items()
    }
    state.checked = {
        MemberId(member): (PodUid(uid), Finding("ok", kind=kind, compute=compute, network=network))
        for member, (uid, kind, compute, network) in saved.get("checked", {}).items()
    }
    state.rounds, state.round_number = list(saved.get("rounds", ())), int(saved.get("round_number", 0))
    state.exclusions = {RankIndex(int(index)): int(n) for index, n in saved.get("exclusions", {}).items()}
    state.memory = {RankIndex(int(index)): int(needed) for index, needed in saved.get("memory", {}).items()}
    state.slow_replaced = {RankIndex(index) for index in saved.get("slow_replaced", ())}
    state.parted = {RankIndex(int(index)): _moment(state, at) for index, at in saved.get("parted", {}).items()}
    state.avoiding = tuple(saved.get("avoiding", ()))
    state.condemned = {str(n): _moment(state, at) for n, at in saved.get("condemned", {}).items()}
    state.flags = {
        str(node): Flag(str(action), str(why), to_go={PodUid(uid) for uid in to_go})
        for node, (action, why, to_go) in saved.get("flags", {}).items()
    }
    state.hits = {(rule_of(rule), str(whose)): [float(at) - state.unix_offset for at in hits]
                  for rule, whose, hits in saved.get("hits", ())}  # fmt: skip
    state.holding = {(str(node), rule_of(rule)): bool(is_met) for node, rule, is_met in saved.get("holding", ())}
    state.log_serials = {MemberId(member): int(serial) for member, serial in saved.get("log_serials", {}).items()}
    state.dropped_patterns = set(saved.get("dropped_patterns", ()))
    forgiven_at = saved.get("forgiven_at")
    state.forgiven_at = float("-inf") if forgiven_at is None else _moment(state, forgiven_at)


def _restore_progress(state: State, saved: Mapping[str, Any]) -> None:
    state.faults = [
        Fault(_moment(state, at), kind, None if member is None else MemberId(member), reason,
              Generation(term, number), lost, *node)
        for at, kind, member, reason, term, number, lost, *node in saved.get("faults", ())
    ]  # fmt: skip
    state.owner.size = saved.get("owner_size")
    state.owner.suspended = bool(saved.get("owner_suspended"))
    state.metrics = log_metric_values.restored(saved.get("metrics"), state.spec.metrics_pattern, state.unix_offset)
    if saved.get("scaling"):
        state.scaling = scaling_curve.restored(saved["scaling"], state.unix_offset)
    state.fault_counts = {str(kind): int(count) for kind, count in saved.get("fault_counts", {}).items()}
    state.seconds_lost = float(saved.get("seconds_lost", 0.0))
    state.saves = {str(path): int(step) for path, step in saved.get("saves", ())}
    state.prints = {str(each): int(step) for each, step in saved.get("prints", ())}
    state.steps_repeated = int(saved.get("steps_repeated", 0))
    state.first_step = saved.get("first_step")
    state.high_step = int(saved.get("high_step", 0))
    state.step_estimated = bool(saved.get("step_estimated", False))
    at = saved.get("high_step_at")
    state.high_step_at = None if at is None else _moment(state, at)
    state.high_step_generation = Generation(*saved.get("high_step_generation", (0, 0)))
    state.step_seconds.extend(saved.get("step_seconds", ()))
    state.first_world, state.samples_repeated, notes = saved.get("data", (0, 0, ()))
    state.data_notes = [DataNote(*note) for note in notes]


def begin(state: State, term: int, spec: JobSpec, unix_time: float, saved: Mapping[str, Any] | None) -> bool:
    """Sets the state up; true where an earlier master left a job that goes on. One that begins anew after its end
    (docs/adr/0036) goes on only in its numbers."""
    state.term, state.spec, state.target = term, spec, spec.replicas
    state.unix_offset = unix_time - state.now
    state.began_at = state.began_now = state.deaf_until = state.restarts.since = state.now
    kept = saved.get("saved") if saved is not None else None
    if not isinstance(kept, dict):
        return False
    if kept.get("anew"):
        _restore_numbers(state, kept)
        state.number_before = state.number
        return False
    restore(state, kept)
    return True


def _restore_numbers(state: State, saved: Mapping[str, Any]) -> None:
    state.number, state.number_before = int(saved.get("number", 0)), int(saved.get("number_before", 0))
    state.next_id = {Role(role): int(number) for role, number in saved.get("next_id", {}).items()}
    state.version = state.saved_version = int(saved.get("version", 0))
