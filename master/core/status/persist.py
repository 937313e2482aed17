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
from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.checkpoints import DataNote
from outrider.master.core.state.generation import Fault, World
from outrider.master.core.state.job import STOPPING, State
from outrider.master.core.state.member import SILENT, Member, Placed, in_order
from outrider.master.core.state.nodecheck import Finding
from outrider.master.core.state.placement import FailedPod
from outrider.master.core.state.rules import Flag
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
        "version": state.status.version,
        "owner_size": state.placement.owner.size,
        "owner_suspended": state.placement.owner.suspended,
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
        "next_id": {str(role): number for role, number in sorted(state.placement.next_id.items())},
        "members": {str(m.id): [m.uid, m.rank_index, m.own_index] for m in members},
        "addresses": {str(m.id): [m.uid, m.address, m.probe_port] for m in members if m.address},
        "silent": {str(m.id): [m.uid, m.heard_at + offset] for m in members if m.life == SILENT},
        "met": {str(i): [g.term, g.number, port] for i, (g, port) in sorted(state.met.items()) if i in state.members},
        "checked": {str(m.id): [m.uid, *_measured(m)] for m in members if _is_checked(state, m)},
        "rounds": state.nodecheck.rounds,
        "round_number": state.nodecheck.round_number,
        "exclusions": {str(index): times for index, times in sorted(state.nodecheck.exclusions.items())},
    }


def _replacements(state: State) -> dict[str, object]:
    """What pods were made and have failed, and what the next one of a rank index needs."""
    offset = state.unix_offset
    return {
        "held": sorted(state.placement.held),
        "spares_made": state.placement.spares_made,
        "relaunches": state.placement.relaunches,
        "failed_relaunches": {str(k): [b.used, b.since + offset]
                              for k, b in sorted(state.placement.failed_relaunches.items())},
        "failures": {str(k): count for k, count in sorted(state.placement.failures.items())},
        "failed_pods": {str(m): [kept.uid, kept.rank_index, kept.taken]
                        for m, kept in sorted(state.placement.failed_pods.items())},
        "memory": {str(index): needed for index, needed in sorted(state.faults.memory.items())},
        "slow_replaced": sorted(state.slow_replaced),
        "parted": {str(index): at + offset for index, at in sorted(state.parted.items())},
    }  # fmt: skip


def _nodes(state: State) -> dict[str, object]:
    """What speaks against nodes."""
    offset = state.unix_offset
    return {
        "avoiding": list(state.exclusion.avoiding),
        "condemned": {node: at + offset for node, at in sorted(state.exclusion.condemned.items())},
        "flags": {node: [f.action, f.why, sorted(f.to_go)] for node, f in sorted(state.rules.flags.items())},
        "forgiven_at": None if state.exclusion.forgiven_at == float("-inf") else state.exclusion.forgiven_at + offset,
    }


def _rules(state: State) -> dict[str, object]:
    """What the user's rules have counted."""
    offset = state.unix_offset
    return {
        "hits": [[list(rule), whose, [at + offset for at in hits]]
                 for (rule, whose), hits in sorted(state.rules.hits.items())],
        "holding": [[node, list(rule), is_met] for (node, rule), is_met in sorted(state.rules.holding.items())],
        "log_serials": dict(sorted(state.rules.log_serials.items())),
        "dropped_patterns": sorted(state.rules.dropped_patterns),
    }  # fmt: skip


def _faults(state: State) -> dict[str, object]:
    offset = state.unix_offset
    return {
        "restarts": [state.faults.restarts.used, state.faults.restarts.since + offset],
        "same_error": list(state.faults.same_error),
        "port_clashes": state.faults.port_clashes,
        "faults": [[f.at + offset, f.kind, f.member, f.reason, f.generation.term, f.generation.number, f.seconds_lost,
                    f.node] for f in state.faults.noted],
        "fault_counts": dict(sorted(state.faults.counts.items())),
        "seconds_lost": round(state.progress.seconds_lost, 3),
    }  # fmt: skip


def _progress(state: State) -> dict[str, object]:
    """How far training has come, and at what pace."""
    offset = state.unix_offset
    return {
        "saves": [[path, step] for path, step in state.progress.saves.items()],
        "prints": [[each, step] for each, step in list(state.progress.prints.items())[-PRINTS_SAVED:]],
        "steps_repeated": state.all_repeated,
        "first_step": state.progress.first_step,
        "high_step": state.progress.high_step,
        "high_step_at": None if state.progress.high_step_at is None else state.progress.high_step_at + offset,
        "step_estimated": state.progress.step_estimated,
        "high_step_generation": [state.progress.high_step_generation.term, state.progress.high_step_generation.number],
        "step_seconds": list(state.progress.step_seconds)[-11:],
        "data": [
            state.progress.first_world,
            state.checkpoints.samples_repeated,
            [list(note) for note in state.checkpoints.data_notes],
        ],
        "pace": hangs_limits.saved(state.hangs.pace, offset),
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
def restore(state: State, saved: Mapping[str, Any]) -> None:
    """Takes over what an earlier master wrote; what is missing keeps its default."""
    offset = state.unix_offset
    _restore_numbers(state, saved)
    state.target = int(saved.get("target", state.target))
    state.began_at = _moment(state, saved.get("began_at", state.now + offset))
    state.placement.held = {RankIndex(index) for index in saved.get("held", ())}
    state.earlier.placed = {
        MemberId(member): _placed(*entry) for member, entry in saved.get("members", {}).items() if entry[0] is not None
    }
    state.earlier.addresses = {
        MemberId(member): (PodUid(uid), str(address), int(port))
        for member, (uid, address, port) in saved.get("addresses", {}).items()
    }
    state.earlier.silent = {
        MemberId(member): (PodUid(uid), _moment(state, heard_at))
        for member, (uid, heard_at) in saved.get("silent", {}).items()
        if uid is not None
    }
    state.placement.spares_made = int(saved.get("spares_made", 0))
    state.placement.relaunches = int(saved.get("relaunches", 0))
    state.placement.failed_relaunches = {
        int(k): Budget(int(u), _moment(state, s)) for k, (u, s) in saved.get("failed_relaunches", {}).items()
    }
    _restore_replacements(state, saved)
    used, since = saved.get("restarts", (0, offset))
    state.faults.restarts = Budget(int(used), _moment(state, since))
    text, count = saved.get("same_error", ("", 0))
    state.faults.same_error = (str(text), int(count))
    state.faults.port_clashes = int(saved.get("port_clashes", 0))
    state.met = {
        MemberId(member): (Generation(term, number), int(port))
        for member, (term, number, port) in saved.get("met", {}).items()
    }
    state.earlier.saved_world, state.earlier.saved_left = saved.get("world"), saved.get("left")
    term, up_to = saved.get("reserved", (0, 0))
    state.earlier.saved_numbers = (int(term), int(up_to))
    state.hangs.pace = hangs_limits.restored(saved.get("pace", {}), offset)
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
    state.placement.failures = {int(key): int(count) for key, count in saved.get("failures", {}).items()}
    state.placement.failed_pods = {
        MemberId(member): FailedPod(PodUid(uid), _index(index), *taken)
        for member, (uid, index, *taken) in saved.get("failed_pods", {}).items()
    }
    state.nodecheck.checked = {
        MemberId(member): (PodUid(uid), Finding("ok", kind=kind, compute=compute, network=network))
        for member, (uid, kind, compute, network) in saved.get("checked", {}).items()
    }
    state.nodecheck.rounds, state.nodecheck.round_number = (
        list(saved.get("rounds", ())),
        int(saved.get("round_number", 0)),
    )
    state.nodecheck.exclusions = {RankIndex(int(index)): int(n) for index, n in saved.get("exclusions", {}).items()}
    state.faults.memory = {RankIndex(int(index)): int(needed) for index, needed in saved.get("memory", {}).items()}
    state.slow_replaced = {RankIndex(index) for index in saved.get("slow_replaced", ())}
    state.parted = {RankIndex(int(index)): _moment(state, at) for index, at in saved.get("parted", {}).items()}
    state.exclusion.avoiding = tuple(saved.get("avoiding", ()))
    state.exclusion.condemned = {str(n): _moment(state, at) for n, at in saved.get("condemned", {}).items()}
    state.rules.flags = {
        str(node): Flag(str(action), str(why), to_go={PodUid(uid) for uid in to_go})
        for node, (action, why, to_go) in saved.get("flags", {}).items()
    }
    state.rules.hits = {(rule_of(rule), str(whose)): [float(at) - state.unix_offset for at in hits]
                  for rule, whose, hits in saved.get("hits", ())}  # fmt: skip
    state.rules.holding = {(str(node), rule_of(rule)): bool(is_met) for node, rule, is_met in saved.get("holding", ())}
    state.rules.log_serials = {MemberId(member): int(serial) for member, serial in saved.get("log_serials", {}).items()}
    state.rules.dropped_patterns = set(saved.get("dropped_patterns", ()))
    forgiven_at = saved.get("forgiven_at")
    state.exclusion.forgiven_at = float("-inf") if forgiven_at is None else _moment(state, forgiven_at)


def _restore_progress(state: State, saved: Mapping[str, Any]) -> None:
    state.faults.noted = [
        Fault(_moment(state, at), kind, None if member is None else MemberId(member), reason,
              Generation(term, number), lost, *node)
        for at, kind, member, reason, term, number, lost, *node in saved.get("faults", ())
    ]  # fmt: skip
    state.placement.owner.size = saved.get("owner_size")
    state.placement.owner.suspended = bool(saved.get("owner_suspended"))
    state.metrics = log_metric_values.restored(saved.get("metrics"), state.spec.metrics_pattern, state.unix_offset)
    if saved.get("scaling"):
        state.scaling = scaling_curve.restored(saved["scaling"], state.unix_offset)
    state.faults.counts = {str(kind): int(count) for kind, count in saved.get("fault_counts", {}).items()}
    state.progress.seconds_lost = float(saved.get("seconds_lost", 0.0))
    state.progress.saves = {str(path): int(step) for path, step in saved.get("saves", ())}
    state.progress.prints = {str(each): int(step) for each, step in saved.get("prints", ())}
    state.progress.steps_repeated = int(saved.get("steps_repeated", 0))
    state.progress.first_step = saved.get("first_step")
    state.progress.high_step = int(saved.get("high_step", 0))
    state.progress.step_estimated = bool(saved.get("step_estimated", False))
    at = saved.get("high_step_at")
    state.progress.high_step_at = None if at is None else _moment(state, at)
    state.progress.high_step_generation = Generation(*saved.get("high_step_generation", (0, 0)))
    state.progress.step_seconds.extend(saved.get("step_seconds", ()))
    state.progress.first_world, state.checkpoints.samples_repeated, notes = saved.get("data", (0, 0, ()))
    state.checkpoints.data_notes = [DataNote(*note) for note in notes]


def begin(state: State, term: int, spec: JobSpec, unix_time: float, saved: Mapping[str, Any] | None) -> bool:
    """Sets the state up; true where an earlier master left a job that goes on. One that begins anew after its end
    (docs/adr/0036) goes on only in its numbers."""
    state.term, state.spec, state.target = term, spec, spec.replicas
    state.unix_offset = unix_time - state.now
    state.began_at = state.began_now = state.membership.deaf_until = state.faults.restarts.since = state.now
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
    state.placement.next_id = {Role(role): int(number) for role, number in saved.get("next_id", {}).items()}
    state.status.version = state.status.saved_version = int(saved.get("version", 0))
