"""Notes what happens to a job for its history: faults with their evidence, generations, and who holds a rank index."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.master.core.account import causes, goodput
from outrider.master.core.state.hangs import RankEvidence
from outrider.master.core.state.history import POINTS, Case, Curve, RuleLine
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import FaultNoted, GenerationStarted
from outrider.wire.ids import MemberId
from outrider.wire.messages.log_lines import LineMatched

FAILURES, RANKS = 8, 16
"""The most exits and ranks of a hang that are kept of one fault."""
RECENT = 60.0
"""Seconds before a fault within which a matched line is evidence for it."""
DRAWN = ("loss", "accuracy", "latency", "rate", "noise")
"""The numbers of the log (`scaling.log_metric_values`) that are kept over time."""


def fault(state: State, _noted: FaultNoted) -> None:
    """Notes a new fault, or another root cause of the last one."""
    found = state.faults.noted[-1]
    cases = state.history.cases
    if not cases or cases[-1].fault is not found:
        cases.append(_case(state))
    case, member = cases[-1], _member(state, found.member)
    if member is not None:
        case.rank_index, case.node = member.rank_index, member.node
        case.ranks = _ranks(state, member)
        case.pod = (member.pod_phase, member.pod_reason, member.exit_code)
    state.history.is_new = True


def _case(state: State) -> Case:
    found = state.faults.noted[-1]
    case = Case(found, state.now, None, (), found.node, state.progress.high_step, goodput.settled(state))
    case.lines = tuple(each for each in state.history.lines if each.at > state.now - RECENT)
    if found.kind == "HangDetected":
        case.evidence = state.history.looked
    return case


def _member(state: State, member_id: MemberId | None) -> Member | None:
    if member_id is None:
        return None
    return state.members.get(member_id) or state.placement.past.get(member_id)


def _ranks(state: State, member: Member) -> tuple[int, ...]:
    place = None if state.world is None else state.world.places.get(member.id)
    return () if place is None else tuple(range(place.first_rank, place.first_rank + place.nproc))


def looked(state: State, evidence: list[RankEvidence]) -> None:
    """Notes what the ranks of a generation do that may hang: those that are stopped or say nothing first."""
    ordered = sorted(evidence, key=lambda each: (not each.process, not each.is_mute, each.rank))
    state.history.looked = tuple(ordered[:RANKS])


def line(state: State, member: Member, match: LineMatched) -> None:
    """Notes a line that a rule of the user has matched."""
    state.history.lines.append(RuleLine(state.now, member.id, match.rank, match.line))


def numbers(state: State, values: Mapping[str, float], at: float) -> None:
    """Notes the numbers of a line of the log that was written at this moment."""
    for name in DRAWN:
        if name in values:
            _extend(state.history.curves.setdefault(name, Curve()), at, values[name])


def _extend(curve: Curve, at: float, value: float) -> None:
    if at <= curve.newest[0]:
        return
    curve.newest = at, value
    curve.low, curve.high = min(curve.low, value), max(curve.high, value)
    if not curve.points or at - curve.points[-1][0] >= curve.every:
        curve.points.append(curve.newest)
    if len(curve.points) > POINTS:
        curve.every = 2 * max(curve.every, (at - curve.points[0][0]) / POINTS)
        curve.points = curve.points[::2]


def generation(state: State, _started: GenerationStarted) -> None:
    world, history = state.world, state.history
    assert world is not None
    history.generations.append((state.now, str(world.generation), len(world.places), world.world_size))
    for place in world.places.values():
        member = state.members.get(place.member)
        history.holders.append((state.now, place.rank_index, str(place.member), "" if member is None else member.node))
    history.is_new = True


def look(state: State) -> None:
    """Adds, at the end of a step, what has become known of the newest faults."""
    incident = state.faults.incident
    for case in reversed(state.history.cases):
        if case.recovered_at is not None:
            break
        if incident is not None and incident.fault is case.fault and len(incident.failures) != len(case.failures):
            case.failures = tuple(incident.failures[:FAILURES])
        if case.fault.seconds_lost is not None:
            case.recovered_at, case.cost = state.now, _cost(state, case)
            case.step = max(case.step, 0 if state.world is None else state.world.resume.high)  # reports may come late
            state.history.is_new = True


def _cost(state: State, case: Case) -> dict[str, float]:
    spent = {cause: now - case.before[cause] for cause, now in goodput.settled(state).items()}
    return {cause: round(each, 3) for cause, each in spent.items() if each >= 0.001 and cause != causes.PRODUCTIVE}
