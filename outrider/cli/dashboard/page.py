"""The documents of the page: what is known of a job, as JSON for its script.

Names, messages and lines come from jobs, which are not trusted: control characters are taken out here and lengths are
bounded; the page shows them as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from outrider.cli.dashboard.advice_now import rows, to_do
from outrider.cli.dashboard.sources import ORDERS
from outrider.cli.text import outcome, sentence
from outrider.report import drawing
from outrider.report.advice import advice
from outrider.report.faults import Shown, faults, node_of, rank_of
from outrider.report.job import OVER, Job
from outrider.report.reading import clean, unix
from outrider.report.words import seconds

Document = dict[str, Any]
LONGEST, BEGINNING = 2000, 500
"""The most characters of a text, and how many of them are its first: a traceback ends with the error."""
MOST_FAULTS, MOST_MEMBERS, MOST_SAMPLES = 60, 12_000, 400
MEMBER: Final = {
    "id": "", "role": "", "rank_index": None, "state": "", "node": "", "mode": "", "step": 0, "own_seconds": None,
    "cpu": 0.0, "memory_mib": 0.0, "memory_limit_mib": 0.0, "gpus": 0, "round_trip_ms": None, "loss": None,
    "blocked": "",
}  # fmt: skip
"""The fields of a member that are those of the status, with their values if they are missing."""
JOB: Final = {
    "job": "", "phase": "", "message": "", "step": 0, "step_estimated": False, "world": None, "generation": "",
    "restarts": 0, "exit_code": None, "goodput": None, "goodput_1h": None, "goodput_1d": None, "mtbf_seconds": None,
}  # fmt: skip
SUMMARY: Final = ("job", "phase", "step", "world", "restarts", "goodput")


def cleaned(value: Any) -> Any:
    """The value with all its texts cleaned and cut; what JSON does not have becomes null."""
    if isinstance(value, str):
        text = clean(value)
        return text if len(text) <= LONGEST else f"{text[:BEGINNING]}\n…\n{text[BEGINNING + 3 - LONGEST :]}"
    if isinstance(value, Mapping):
        return {clean(str(name))[:100]: cleaned(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each) for each in value]
    return value if value is None or isinstance(value, bool | int) or _is_finite(value) else None


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and abs(value) < float("inf")


def summary(status: Mapping[str, Any]) -> Document:
    """A job in the list of all jobs."""
    found: Document = cleaned({name: status.get(name) for name in SUMMARY})
    return {
        **found,
        "faults": len(rows(status.get("faults"))),
        "sentence": f"{sentence(status)}.",
    }


def document(job: Job, status: Mapping[str, Any], may: Mapping[str, bool], now: float) -> Document:
    """Everything about a job but its timeline and events; `status` is its document, `job` what the report reads."""
    found: Document = cleaned({name: status.get(name, default) for name, default in JOB.items()})
    shown = faults(job)[-MOST_FAULTS:]
    by_member = [each for each in rows(status.get("members")) if each.get("id")][:MOST_MEMBERS]
    orders = {what: bool(may.get(what)) and job.status.phase not in OVER for what in ORDERS}
    least, most = status["sizes"]
    orders["scale"] &= least is None or least != most
    metrics = _map(status.get("metrics"))
    if found["world"] is None and job.timeline.generations:  # an ElasticJob's status does not have it
        found["world"] = job.timeline.generations[-1].ranks
    found |= cleaned({
        "where": job.where,
        "sentence": f"{outcome(status)}.",
        "to_do": to_do(status, shown),
        "duration": job.duration, "began": job.began,
        "account": [piece(each) for each in drawing.account(job.account)],
        "members": [_member(each, status, now) for each in by_member],
        "stragglers": [{"member": each.get("member"), "reason": each.get("reason")}
                       for each in rows(status.get("stragglers"))],
        "links": list(_links(_map(status.get("network")))),
        "faults": [_fault(job, each) for each in shown],
        "advice": [{"what": each.what, "how": each.how, "page": each.page} for each in advice(job)],
        "notes": [*job.notes, *([str(metrics["problem"])] if metrics.get("problem") else [])],
        "metrics": {name: each for name, each in metrics.items() if isinstance(each, int | float)},
        "members_wanted": _wanted(status), "sizes": (least, most),
    })  # fmt: skip
    curves = [asdict(each) | {"name": cleaned(each.name)} for each in drawing.curves(job)]
    return found | {"may": orders, "curves": curves}


def over_time(parts: Sequence[Any]) -> list[list[float]]:
    """The samples of all parts: a Unix time, and the productive seconds and those of all members until then."""
    found = []
    for part in parts:
        for row in _lists(part.get("samples") if isinstance(part, Mapping) else None):
            if len(row) == 3 and all(isinstance(each, int | float) and abs(each) < 1e15 for each in row):
                found.append([float(each) for each in row])
    found.sort()
    every = -(-len(found) // MOST_SAMPLES) or 1
    return found[::-every][::-1]


def events(listed: Iterable[Mapping[str, Any]]) -> list[Document]:
    """Events of the status' form as the page shows them."""
    names = ("seq", "kind", "severity", "member", "generation", "reason")
    return [
        cleaned({name: each.get(name) for name in names}) | {"time": unix(str(each.get("time") or ""))}
        for each in listed
    ]


def piece(each: drawing.Piece) -> Document:
    return asdict(each)


def _member(member: Mapping[str, Any], status: Mapping[str, Any], now: float) -> Document:
    pids = _map(member.get("pids"))
    saved = unix(str(status.get("checkpoint_saved_at") or ""))
    is_running = member.get("state") == "running"
    return {
        **{name: member.get(name, default) for name, default in MEMBER.items()},
        "median_seconds": member.get("others_seconds"),
        "checkpoint_age": max(0.0, now - saved) if saved is not None and is_running else None,
        "trainer": pids.get("trainer") or 0,
        "workers": pids.get("workers") or [],
    }


def _links(network: Mapping[str, Any]) -> Iterable[Document]:
    for state in ("down", "slow"):
        for each in rows(network.get(state)):
            yield {"members": each.get("members") or [], "state": state, "reason": each.get("reason") or ""}


def _fault(job: Job, shown: Shown) -> Document:
    fault = shown.fault
    recovered = seconds(sum(each.seconds for each in shown.stages)) if shown.stages else ""
    return {
        "number": shown.number, "at": fault.at, "kind": fault.kind, "member": fault.member,
        "node": node_of(job, fault), "rank": rank_of(fault), "reason": fault.reason, "verdict": shown.verdict,
        "stages": [piece(each) for each in shown.stages], "recovered": recovered,
        "cost": [piece(each) for each in shown.cost],
        "exits": [asdict(each) for each in shown.exits], "groups": [asdict(each) for each in shown.groups],
        "lines": [list(each) for each in shown.lines],
        "decisions": [[since, each.kind, each.sentence] for since, each in shown.decisions],
    }  # fmt: skip


def _wanted(status: Mapping[str, Any]) -> int | None:
    found = [each for each in rows(status.get("members")) if isinstance(each.get("rank_index"), int)]
    here = {each["rank_index"] for each in found if each.get("state") not in ("gone", "replaced")}
    return len(here) or None


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _lists(value: object) -> list[list[Any]]:
    return [each for each in value if isinstance(each, list)] if isinstance(value, list) else []
