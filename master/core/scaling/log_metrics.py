"""What the job's own log says of its training: the newest numbers of the lines that fit `spec.metrics.logPattern`.

The lines are found like those of rules (`log_rules`), beside the trainer and in bounded time. One rank's are enough, so
only the member with rank 0 is given the pattern. A number that cannot be one (nan, a latency of 0) is told, and nothing
is decided by it. The numbers measure the job (`scaling.autoscaler`) where the hooks see no steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.master.core.generation import progress
from outrider.master.core.scaling import autoscaler
from outrider.master.core.scaling.log_metric_values import read
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.generation import Place
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.scaling import Metrics
from outrider.master.core.text import quoted, seconds
from outrider.wire.messages.log_lines import LineMatched, PatternDropped

QUIET = 300.0
"""Seconds of a world after which it is told that no line has fitted."""


def patterns(state: State, place: Place) -> tuple[str, ...]:
    """What the ranks at this place are searched for, beside the patterns of rules."""
    wanted = state.spec.metrics_pattern
    return (wanted,) if wanted and place.first_rank == 0 and wanted not in state.rules.dropped_patterns else ()


def begin(state: State) -> None:
    """A world is told to start, or something else is wanted."""
    if state.spec.metrics_pattern or state.spec.scaling:
        state.deadlines.set(("unmeasured", ""), state.now + QUIET)


def edited(state: State, before: JobSpec) -> None:
    """The next generation is searched for another pattern."""
    if before.metrics_pattern != state.spec.metrics_pattern:
        state.metrics = Metrics()
        begin(state)


def matched(state: State, member: Member, said: LineMatched) -> None:
    world, found = state.world, state.metrics
    if said.pattern != state.spec.metrics_pattern or said.rank != 0:
        return
    if world is None or state.stage != RUNNING or said.generation != world.generation:
        return
    values, wrong = read(said.groups)
    found.values |= values
    found.line, found.at, found.lines = said.line, state.now - said.age, found.lines + said.count
    _complain(state, member, wrong)
    if state.spec.counts_logged_steps and "step" in values:
        progress.read_in_log(state, world, int(values["step"]), found.at)
    autoscaler.note_line(state, member, values, found.at)


def _complain(state: State, member: Member, wrong: Mapping[str, str]) -> None:
    """Once of each group: a line may come each second, and every second one be wrong. The status has the newest."""
    found = state.metrics
    told = " and ".join(f'{name} is "{text}"' for name, text in wrong.items())
    problem = told and f"By metrics.logPattern {told}, which is left out."
    if not wrong.keys() <= found.told:
        found.told |= wrong.keys()
        state.announce("MetricsInvalid", f"{problem} The line: {quoted(found.line)}.", member.id, warning=True)
    if problem != found.problem:
        found.problem = problem
        state.mark_status()


def dropped(state: State, member: Member, said: PatternDropped) -> None:
    """Told once; no later generation is asked for it."""
    if said.pattern != state.spec.metrics_pattern or said.pattern in state.rules.dropped_patterns:
        return
    state.rules.drop(said.pattern)
    on = f": {quoted(said.line)}" if said.line else ""
    name = f"metrics.logPattern {quoted(said.pattern)}"
    _warn(state, "MetricsDisabled", f"{name} is followed no more: on {member.id} {said.reason}{on}.")


def due(state: State) -> None:
    """The world has run for a while: has nothing been measured?"""
    wanted = state.spec.metrics_pattern
    if state.is_over or state.stage != RUNNING:
        return
    if wanted and not state.metrics.lines and not state.metrics.problem:
        text = f"No line of rank 0's output has fitted metrics.logPattern {quoted(wanted)} in {seconds(QUIET)}."
        _warn(state, "MetricsMissing", text)
    autoscaler.still_unmeasured(state)


def _warn(state: State, kind: str, text: str) -> None:
    state.metrics.problem = text
    state.announce(kind, text, warning=True)
    state.mark_status()
