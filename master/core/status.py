"""What users read about a job, and what the next master needs: one document, written by `SaveStatus`.

The document of `docs/contracts.md` §7 plus `saved`. It is written at once where a generation depends on it, at most
once a second otherwise, and every ten seconds while nothing happens. A checkpoint is nothing that happens: a training
that saves every second would write as often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median
from typing import Any

from master.core import link_telling, pace, slowness
from master.core.actions import SaveStatus
from master.core.pairing import Finding
from master.core.spec import JobSpec, rule_of
from master.core.state import (
    COMMITTING,
    FAILED,
    REBUILDING,
    RUNNING,
    SILENT,
    STOPPING,
    Budget,
    FailedPod,
    Fault,
    Flag,
    Member,
    Placed,
    State,
)
from wire.ids import Generation, MemberId, PodUid, RankIndex, Role

LIVING_STATES = ("starting", "checking", "ready", "running", "stopping", "spare", "silent", "unsupervised", "done")
LEAST_APART = 1.0
AT_REST = 10.0


# -- writing ------------------------------------------------------------------------------------------------------
def save_now(state: State, reason: str) -> None:
    """Writes the status in this step."""
    state.version += 1
    state.status_wanted, state.status_saved_at = False, state.now
    state.deadlines.set(("status", ""), state.now + AT_REST)
    state.act(SaveStatus(state.version, _saved_document(state), state.generation, reason))


def mark(state: State) -> None:
    """Something that users see has changed."""
    state.status_wanted = True


def flush(state: State) -> None:
    """At the end of a step: writes what is marked, or sets the moment at which it may be written."""
    if not state.status_wanted or not state.listed:
        return
    last = state.status_saved_at
    earliest = state.write_not_before if last is None else max(last + LEAST_APART, state.write_not_before)
    if state.now >= earliest:
        save_now(state, "The status has changed.")
    else:
        state.deadlines.set(("status", ""), earliest)


def due(state: State) -> None:
    """The moment for the next status."""
    save_now(state, "The status has changed." if state.status_wanted else "Nothing new has happened.")


# -- reading ------------------------------------------------------------------------------------------------------
def document(state: State, now: float) -> dict[str, Any]:
    """The status as users read it."""
    world = state.world
    return {
        "version": 1,
        "job": str(state.spec.name),
        "phase": state.phase,
        "generation": str(state.generation),
        "world": world.world_size if world is not None else 0,
        "step": state.high_step,
        "restarts": max(0, state.number - 1),
        "goodput": goodput(state, now),
        "message": state.message,
        "exit_code": state.exit_code,
        "rungs": _rungs(state),
        "faults": [_fault(state, fault) for fault in state.faults],
        "avoided_nodes": list(state.avoiding),
        "memory": {str(index): needed for index, needed in sorted(state.memory.items())},
        "node_check": state.rounds,
        **slowness.document(state),
        "network": link_telling.document(state),
        "members": [_member(state, m) for m in sorted(_everyone(state), key=_order)],
    }


def goodput(state: State, now: float) -> float | None:
    """New steps × median step time / wall clock since the job began; None before there is anything to tell."""
    if state.first_step is None or not state.step_seconds or now <= state.began_at:
        return None
    new_steps = state.high_step - state.first_step + 1
    return min(1.0, new_steps * median(state.step_seconds) / (now - state.began_at))


def _rungs(state: State) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in state.members.values():
        if member.rung:
            counts[member.rung] = counts.get(member.rung, 0) + 1
    return dict(sorted(counts.items()))


def _fault(state: State, fault: Fault) -> dict[str, Any]:
    lost = None if fault.seconds_lost is None else round(fault.seconds_lost, 3)
    return {
        "time": clock(state, fault.at),
        "kind": fault.kind,
        "member": fault.member,
        "reason": fault.reason,
        "seconds_lost": lost,
    }


def clock(state: State, at: float) -> str:
    """A moment of the core's clock as users read it: RFC 3339, UTC."""
    text = datetime.fromtimestamp(at + state.unix_offset, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _everyone(state: State) -> list[Member]:
    return [*state.past.values(), *state.members.values()]


def _order(member: Member) -> tuple[str, int, str]:
    number = member.id.rpartition("-")[2]
    return (member.role, int(number) if number.isdigit() else 0, member.id)


def _member(state: State, member: Member) -> dict[str, Any]:
    report = member.report
    is_here = member.id in state.members
    return {
        "id": str(member.id),
        "role": str(member.role),
        "rank_index": member.rank_index,
        "state": member_state(state, member),
        "rung": member.rung,
        "rung_reason": member.rung_reason,
        **({"held": member.pod_reason} if is_here and member.cannot_start else {}),
        "step": report.step if report else 0,
        "cpu": round(report.cpu, 2) if report and is_here else 0.0,
        "memory_mib": round(report.memory_mib, 1) if report and is_here else 0.0,
        "memory_limit_mib": round(member.memory_limit / 2**20, 1),
        "node": member.node,
        "gpus": report.gpus if report else 0,
        **link_telling.of_member(state, member),
        "pids": {
            "sidecar": report.sidecar_pid if report and is_here else 0,
            "trainer": member.trainer_pid if is_here else 0,
            "workers": list(report.pids) if report and is_here else [],
        },
    }


def member_state(state: State, member: Member) -> str:
    """One of starting, checking, ready, running, stopping, spare, silent, unsupervised, lost, replaced, gone, failed,
    done."""
    if member.id not in state.members:
        return _past_state(state, member)
    if member.is_stranger:
        return "done" if member.finished else "unsupervised"
    if member.life == SILENT:
        return "silent"
    world = state.world
    if world is not None and member.id in world.places and state.stage not in (COMMITTING, REBUILDING):
        if member.finished or member.id in world.done:
            return "done"
        if state.stage == RUNNING and member.id in world.started:
            return "running"
        if state.stage == STOPPING and member.ready is None:
            return "stopping" if member.stopped < world.generation else "starting"
        if state.is_over and member.stopped < world.generation and member.orders:
            return "stopping"
    if state.check is not None and member.id in state.check.orders:
        return "checking"
    if member.ready is None:
        return "starting"
    return "ready" if member.rank_index is not None else "spare"


def _past_state(state: State, member: Member) -> str:
    if member.life == FAILED:
        return "failed"
    if not member.lost_by_fault and member.leaving:
        return "gone"
    index = member.rank_index
    taken = index is None or any(m.rank_index == index for m in state.members.values())
    return "replaced" if taken else "lost"


# -- for the next master ------------------------------------------------------------------------------------------
def _saved_document(state: State) -> dict[str, object]:
    return document(state, state.now) | {"saved": _saved(state)}


def _saved(state: State) -> dict[str, object]:
    """Moments as unix times, because another process has another clock."""
    offset = state.unix_offset
    return {
        "term": state.term,
        "number": state.number,
        "target": state.target,
        "stage": state.stage,
        "began_at": state.began_at + offset,
        "next_id": {str(role): number for role, number in sorted(state.next_id.items())},
        "members": {str(m.id): [m.uid, m.rank_index, m.own_index]
                    for m in sorted(state.members.values(), key=_order)},
        "addresses": {str(m.id): [m.uid, m.address, m.probe_port]
                      for m in sorted(state.members.values(), key=_order) if m.address},
        "silent": {str(m.id): [m.uid, m.heard_at + offset]
                   for m in sorted(state.members.values(), key=_order) if m.life == SILENT},
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
        "avoiding": list(state.avoiding),
        "condemned": {node: at + offset for node, at in sorted(state.condemned.items())},
        "flags": {node: [f.action, f.why, sorted(f.to_go)] for node, f in sorted(state.flags.items())},
        "hits": [[list(rule), whose, [at + offset for at in hits]]
                 for (rule, whose), hits in sorted(state.hits.items())],
        "holding": [[node, list(rule), is_met] for (node, rule), is_met in sorted(state.holding.items())],
        "log_serials": dict(sorted(state.log_serials.items())),
        "dropped_patterns": sorted(state.dropped_patterns),
        "forgiven_at": None if state.forgiven_at == float("-inf") else state.forgiven_at + offset,
        "restarts": [state.restarts.used, state.restarts.since + offset],
        "same_error": list(state.same_error),
        "port_clashes": state.port_clashes,
        "faults": [[f.at + offset, f.kind, f.member, f.reason, f.generation.term, f.generation.number, f.seconds_lost,
                    f.node] for f in state.faults],
        "owner_size": state.owner.size,
        "fault_counts": dict(sorted(state.fault_counts.items())),
        "seconds_lost": round(state.seconds_lost, 3),
        "saves": [[path, step] for path, step in state.saves.items()],
        "first_step": state.first_step,
        "high_step": state.high_step,
        "high_step_at": None if state.high_step_at is None else state.high_step_at + offset,
        "high_step_generation": [state.high_step_generation.term, state.high_step_generation.number],
        "step_seconds": list(state.step_seconds)[-11:],
        "version": state.version,
        "pace": pace.saved(state.pace, offset),
        "met": {str(i): [g.term, g.number, port] for i, (g, port) in sorted(state.met.items()) if i in state.members},
        "checked": {str(m.id): [m.uid, *_measured(m)] for m in sorted(state.members.values(), key=_order)
                    if _is_checked(state, m)},
        "rounds": state.rounds,
        "round_number": state.round_number,
        "exclusions": {str(index): times for index, times in sorted(state.exclusions.items())},
        "world": _saved_world(state),
        "ended": [state.phase, state.exit_code] if state.is_over else None,
    }  # fmt: skip


def _is_checked(state: State, member: Member) -> bool:
    return state.spec.node_check and not member.check_wanted and member.uid is not None


def _measured(member: Member) -> tuple[str, float, float]:
    found = member.finding or Finding("ok")
    return (found.kind, round(found.compute, 4), round(found.network, 4))


def _saved_world(state: State) -> dict[str, object] | None:
    world = state.world
    if world is None or state.stage == STOPPING:
        return None
    return {
        "generation": [world.generation.term, world.generation.number],
        "places": [asdict(place) for place in world.places.values()],
        "address": world.address,
        "port": world.port,
        "world_size": world.world_size,
        "made_step": world.made_step,
        "recovered": world.recovered,
        **({} if state.watch is None or state.watch.generation != world.generation else
           {"progress": pace.saved_watch(state.watch, state.pace, state.spec, state.now, state.unix_offset)}),
    }  # fmt: skip


def restore(state: State, saved: Mapping[str, Any]) -> None:
    """Takes over what an earlier master wrote; what is missing keeps its default."""
    offset = state.unix_offset
    state.number = int(saved.get("number", 0))
    state.target = int(saved.get("target", state.target))
    state.began_at = _moment(state, saved.get("began_at", state.now + offset))
    state.next_id = {Role(role): int(number) for role, number in saved.get("next_id", {}).items()}
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
    state.version = state.saved_version = int(saved.get("version", 0))
    state.met = {
        MemberId(member): (Generation(term, number), int(port))
        for member, (term, number, port) in saved.get("met", {}).items()
    }
    state.saved_world = saved.get("world")
    state.pace = pace.restored(saved.get("pace", {}), offset)
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
    state.fault_counts = {str(kind): int(count) for kind, count in saved.get("fault_counts", {}).items()}
    state.seconds_lost = float(saved.get("seconds_lost", 0.0))
    state.saves = {str(path): int(step) for path, step in saved.get("saves", ())}
    state.first_step = saved.get("first_step")
    state.high_step = int(saved.get("high_step", 0))
    at = saved.get("high_step_at")
    state.high_step_at = None if at is None else _moment(state, at)
    state.high_step_generation = Generation(*saved.get("high_step_generation", (0, 0)))
    state.step_seconds.extend(saved.get("step_seconds", ()))


def begin(state: State, term: int, spec: JobSpec, unix_time: float, saved: Mapping[str, Any] | None) -> bool:
    """Sets the state up; true where an earlier master left something."""
    state.term, state.spec, state.target = term, spec, spec.replicas
    state.unix_offset = unix_time - state.now
    state.began_at = state.began_now = state.deaf_until = state.restarts.since = state.now
    kept = saved.get("saved") if saved is not None else None
    if not isinstance(kept, dict):
        return False
    restore(state, kept)
    return True
