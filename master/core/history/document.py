"""The part of a job's history that this master has seen, as the report reads it (docs/contracts.md §15)."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from outrider.master.core.account import causes, goodput
from outrider.master.core.actions import SaveHistory
from outrider.master.core.history import tracks
from outrider.master.core.state.generation import Failure
from outrider.master.core.state.hangs import Call, RankEvidence
from outrider.master.core.state.history import Case, Curve, RuleLine
from outrider.master.core.state.job import ENDED, State

SOON, ROUTINE = 10.0, 600.0
"""Seconds between two writes after something has happened, and otherwise."""
MOST_SPANS = 20_000
"""The most spans of all rank indexes in the document."""
MANY = 64
"""The number of rank indexes above which spans are rounded to half a second, so that equal ones become one row."""
TRACEBACK, SENTENCE, FRAMES, DECISIONS = 4000, 400, 12, 30
"""The most characters of a traceback and of a sentence, frames of a stack, and events of one fault."""


def flush(state: State) -> None:
    """Writes the history at the end of a step if it is due."""
    history = state.history
    if state.lease.lapsed or not state.listed:
        return
    since = state.now - history.written_at
    if state.stage == ENDED or (history.is_new and since >= SOON) or since >= ROUTINE:
        history.is_new, history.written_at = False, state.now
        state.act(SaveHistory(part(state, state.now), state.generation, "The history of the job is saved."))


def part(state: State, now: float) -> dict[str, Any]:
    happened = rows(state, now, most_spans=MOST_SPANS)
    return head(state, now) | happened | {"samples": _samples(state, now), "numbers": numbers(state)}


def numbers(state: State) -> list[dict[str, Any]]:
    """The numbers of the log over time."""
    return [
        {
            "name": name,
            "low": curve.low,
            "high": curve.high,
            "points": [[round(at + state.unix_offset, 1), value] for at, value in _points(curve)],
        }
        for name, curve in sorted(state.history.curves.items())
    ]


def _points(curve: Curve) -> list[tuple[float, float]]:
    return curve.points + [curve.newest] * (curve.points[-1] != curve.newest)


def head(state: State, now: float) -> dict[str, Any]:
    """The part without what happened in it."""
    offset = state.unix_offset
    return {
        "version": 1,
        "job": str(state.spec.name),
        "term": state.term,
        "began_at": round(state.began_at + offset, 3),
        "since": round(state.began_now + offset, 3),
        "until": round(now + offset, 3),
        "causes": list(causes.CAUSES),
    }


def rows(state: State, now: float, *, most_spans: int) -> dict[str, Any]:
    """What happened, as lists."""
    offset, history = state.unix_offset, state.history
    return {
        "tracks": _tracks(state, now, most_spans),
        "generations": [[_ds(state, at), name, members, ranks] for at, name, members, ranks in history.generations],
        "holders": [[_ds(state, at), index, member, node] for at, index, member, node in history.holders],
        "faults": [_fault(state, case, after) for case, after in zip_longest(history.cases, [*history.cases][1:])],
        "events": [[round(each.at + offset, 3), each.kind, each.severity, each.member, each.sentence[:SENTENCE]]
                   for each in history.said],
    }  # fmt: skip


def _samples(state: State, now: float) -> list[list[float]]:
    kept = [[round(each.at + state.unix_offset, 1), round(each.productive, 1), round(each.wall, 1)]
            for each in state.account.samples]  # fmt: skip
    return [*kept, _sample(state, now)]


def _sample(state: State, now: float) -> list[float]:
    spent = goodput.seconds(state, now)
    productive = spent.get(causes.PRODUCTIVE, 0.0)
    return [round(now + state.unix_offset, 1), round(productive, 1), round(goodput.wall(state, now), 1)]


def _ds(state: State, at: float) -> int:
    """A moment in tenths of a second since the job began."""
    return round(10 * (at - state.began_at))


# -- spans --------------------------------------------------------------------------------------------------------
def _tracks(state: State, now: float, most_spans: int) -> list[dict[str, Any]]:
    """The spans of each rank index; neighbours that did the same at the same time share a row."""
    quantum = 1 if len(state.history.tracks) <= MANY else 5
    while True:
        found = _rows(state, now, quantum)
        if sum(len(row["spans"]) for row in found) <= most_spans:
            return found
        quantum *= 2


def _rows(state: State, now: float, quantum: int) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for index, track in sorted(state.history.tracks.items()):
        seat = state.account.seats.get(index)
        spans = list(track.spans)
        end = track.end
        if seat is not None and not state.account.closed and now > end:
            spans, end = [*spans, (end, seat.cause)], now
        kept = tracks.merged(spans, end, quantum / 10)
        row = tuple((round(_ds(state, at) / quantum) * quantum, causes.CAUSES.index(cause)) for at, cause in kept)
        last = _ds(state, end)
        same = found.setdefault((row, round(last / quantum)), {"seats": [], "spans": row, "end": last})
        if same["seats"] and same["seats"][-1][1] == index - 1:
            same["seats"][-1][1] = index
        else:
            same["seats"].append([index, index])
    return [{**row, "spans": [list(span) for span in row["spans"]]} for row in found.values()]


# -- faults -------------------------------------------------------------------------------------------------------
def _fault(state: State, case: Case, after: Case | None) -> dict[str, Any]:
    fault, offset = case.fault, state.unix_offset
    phase, reason, exit_code = case.pod
    return {
        "at": round(fault.at + offset, 3),
        "kind": fault.kind,
        "member": fault.member,
        "rank_index": case.rank_index,
        "ranks": list(case.ranks),
        "node": case.node or fault.node,
        "generation": str(fault.generation),
        "reason": fault.reason[:SENTENCE],
        "pod": {"phase": phase, "reason": reason[:SENTENCE], "exit_code": exit_code},
        "evidence": [*map(_exit, case.failures), *map(_rank, case.evidence), *map(_line, case.lines)],
        "decisions": _decisions(state, case, state.now if after is None else after.began_at),
        "stages": fault.stages,
        "seconds_lost": None if fault.seconds_lost is None else round(fault.seconds_lost, 3),
        "cost": case.cost,
        "recovered_at": None if case.recovered_at is None else round(case.recovered_at + offset, 3),
        "step": case.step,
    }


def _decisions(state: State, case: Case, before: float) -> list[list[Any]]:
    """What was reported from the fault to the first new step, or to the next fault."""
    until = before if case.recovered_at is None else min(before, case.recovered_at)
    found = [each for each in state.history.said if case.began_at <= each.at <= until]
    return [[round(each.at + state.unix_offset, 3), each.kind, each.sentence[:SENTENCE]] for each in found[:DECISIONS]]


def _exit(failure: Failure) -> dict[str, Any]:
    end = failure.exit
    how = f"signal {end.signal}" if end.signal else "unknown" if end.code is None else f"exit code {end.code}"
    error = f"{end.error_type}: {end.error_message}" if end.error_type else ""
    return {
        "what": "exit",
        "member": str(failure.member),
        "rank": failure.rank,
        "sentence": f"{how}{', out of memory' if end.out_of_memory else ''}{', as an effect' * failure.is_effect}",
        "error": error[:SENTENCE],
        "frame": end.error_frame[:SENTENCE],
        "traceback": end.traceback[-TRACEBACK:],
        "step": end.step,
    }


def _rank(row: RankEvidence) -> dict[str, Any]:
    last = row.calls[-1] if row.calls else None
    return {
        "what": "rank",
        "member": str(row.member),
        "rank": row.rank,
        "state": row.process or row.phase,
        "stack": [frame[:SENTENCE] for frame in row.stack[:FRAMES]],
        "collective": "" if last is None else _collective(last),
    }


def _line(row: RuleLine) -> dict[str, Any]:
    return {"what": "line", "member": str(row.member), "rank": row.rank, "line": row.line[:SENTENCE]}


def _collective(call: Call) -> str:
    state = "completed" if call.is_over else f"waits for {call.age:.1f} s"
    return f"{call.op} number {call.seq} of group {call.name or 'default'}, {state}, at {call.frame}"[:SENTENCE]
