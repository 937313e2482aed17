"""Lines of the ranks' output that fit a pattern. They are told to the master at once, and again to whoever welcomes
this member.

A repeat is known by its serial. Where nobody was there to be told, the lines of one rank and pattern are counted
together, as the matcher itself does. All of it is forgotten when the next generation starts: what it was about is over.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action
from outrider.sidecar.core.state import State
from outrider.wire.messages.log_lines import LineMatched, PatternDropped


def matched(state: State, said: LineMatched, at: float, now: float) -> list[Action]:
    key, lines = (said.rank, said.pattern), state.lines
    if key in lines.unsaid:
        said = replace(said, count=said.count + lines.matched[key][0].count)
    lines.matched[key] = (said, at)
    lines.unsaid.add(key)
    return _say(state, key, now)


def dropped(state: State, said: PatternDropped) -> list[Action]:
    state.lines.dropped[said.pattern] = said
    return outbox.say(state, said, f"a pattern is followed no more: {said.reason}", said.generation)


def again(state: State, now: float) -> list[Action]:
    """After a Welcome, in the order in which they came."""
    actions: list[Action] = []
    for said in state.lines.dropped.values():
        actions += dropped(state, said)
    for key, _ in sorted(state.lines.matched.items(), key=lambda item: item[1][0].serial):
        actions += _say(state, key, now)
    return actions


def _say(state: State, key: tuple[int, str], now: float) -> list[Action]:
    said, at = state.lines.matched[key]
    told = replace(said, age=max(0.0, now - at))
    actions = outbox.say(state, told, f"rank {said.rank} has written a line that fits a pattern", said.generation)
    if actions:
        state.lines.unsaid.discard(key)
    return actions
