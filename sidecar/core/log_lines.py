"""Sends lines of the ranks' output that match a pattern to the master, at once and again after each Welcome.

The master recognizes a repeat by its serial number. While no master is connected, the lines of one rank and pattern are
counted together, as the matcher itself does. The lines are dropped when the next generation starts.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action
from outrider.sidecar.core.state import State
from outrider.wire.messages.log_lines import LineMatched, PatternDropped


def matched(state: State, match: LineMatched, at: float, now: float) -> list[Action]:
    key, lines = (match.rank, match.pattern), state.lines
    if key in lines.unsent:
        match = replace(match, count=match.count + lines.matched[key][0].count)
    lines.matched[key] = (match, at)
    lines.unsent.add(key)
    return _send(state, key, now)


def dropped(state: State, report: PatternDropped) -> list[Action]:
    state.lines.dropped[report.pattern] = report
    return outbox.say(state, report, f"a pattern is no longer searched for: {report.reason}", report.generation)


def again(state: State, now: float) -> list[Action]:
    """Repeats all of them after a Welcome, in the order in which they came."""
    actions: list[Action] = []
    for report in state.lines.dropped.values():
        actions += dropped(state, report)
    for key, _ in sorted(state.lines.matched.items(), key=lambda item: item[1][0].serial):
        actions += _send(state, key, now)
    return actions


def _send(state: State, key: tuple[int, str], now: float) -> list[Action]:
    match, at = state.lines.matched[key]
    message = replace(match, age=max(0.0, now - at))
    actions = outbox.say(state, message, f"rank {match.rank} wrote a line that matches a pattern", match.generation)
    if actions:
        state.lines.unsent.discard(key)
    return actions
