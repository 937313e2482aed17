"""Training metrics from the job's log: the newest numbers in lines that match `spec.metrics.logPattern`.

The lines are matched like those of log rules (`log_rules`), beside the trainer and in bounded time. One rank is enough,
so only the member with rank 0 receives the pattern. Non-finite or impossible values (NaN, zero latency) are reported
and ignored. The numbers measure the job (`scaling.autoscaler`) if the hooks see no steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.master.core.generation import progress
from outrider.master.core.history import notes
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
"""Seconds after the start of a generation at which the lack of matching lines is reported."""


def patterns(state: State, place: Place) -> tuple[str, ...]:
    """The patterns for the output of this member's ranks, without those of rules."""
    pattern = state.spec.metrics_pattern
    return (pattern,) if pattern and place.first_rank == 0 and pattern not in state.rules.dropped_patterns else ()


def begin(state: State) -> None:
    """Sets the deadline for the first matching line, when a generation starts or the pattern was edited."""
    if state.spec.metrics_pattern or state.spec.scaling:
        state.deadlines.set(("unmeasured", ""), state.now + QUIET)


def edited(state: State, before: JobSpec) -> None:
    """Drops the old metrics if the pattern was edited; the next generation uses the new one."""
    if before.metrics_pattern != state.spec.metrics_pattern:
        state.metrics = Metrics()
        begin(state)


def matched(state: State, member: Member, message: LineMatched) -> None:
    """Takes the numbers of a line of rank 0 that has matched the pattern."""
    world, found = state.world, state.metrics
    if message.pattern != state.spec.metrics_pattern or message.rank != 0:
        return
    if world is None or state.stage != RUNNING or message.generation != world.generation:
        return
    values, wrong = read(message.groups)
    found.values |= values
    found.line, found.at, found.lines = message.line, state.now - message.age, found.lines + message.count
    notes.numbers(state, values, found.at)
    _complain(state, member, wrong)
    if state.spec.counts_logged_steps and "step" in values:
        progress.read_in_log(state, world, int(values["step"]), found.at)
    autoscaler.note_line(state, member, values, found.at)


def _complain(state: State, member: Member, wrong: Mapping[str, str]) -> None:
    """Announces invalid values once per group, as lines may come every second; the status has the newest problem."""
    found = state.metrics
    invalid = " and ".join(f'{name} is "{text}"' for name, text in wrong.items())
    problem = invalid and f"Values found by metrics.logPattern are invalid and ignored: {invalid}."
    if not wrong.keys() <= found.reported:
        found.reported |= wrong.keys()
        state.announce("MetricsInvalid", f"{problem} Line: {quoted(found.line)}.", member.id, warning=True)
    if problem != found.problem:
        found.problem = problem
        state.mark_status()


def dropped(state: State, member: Member, message: PatternDropped) -> None:
    """Announces once that a member has dropped the pattern; no later generation uses it."""
    if message.pattern != state.spec.metrics_pattern or message.pattern in state.rules.dropped_patterns:
        return
    state.rules.drop(message.pattern)
    on = f": {quoted(message.line)}" if message.line else ""
    name = f"metrics.logPattern {quoted(message.pattern)}"
    _warn(state, "MetricsDisabled", f"{name} is disabled until it is edited: on {member.id} {message.reason}{on}.")


def due(state: State) -> None:
    """Reports that a generation has run for `QUIET` seconds without a matching line, or without a measurement."""
    pattern = state.spec.metrics_pattern
    if state.is_over or state.stage != RUNNING:
        return
    if pattern and not state.metrics.lines and not state.metrics.problem:
        text = f"No line of rank 0's output has matched metrics.logPattern {quoted(pattern)} in {seconds(QUIET)}."
        _warn(state, "MetricsMissing", text)
    autoscaler.still_unmeasured(state)


def _warn(state: State, kind: str, text: str) -> None:
    state.metrics.problem = text
    state.announce(kind, text, warning=True)
    state.mark_status()
