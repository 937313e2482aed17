"""What each rank index did over time, in a bounded number of spans."""

from __future__ import annotations

from outrider.master.core.state.history import Track

MOST_SPANS = 400
"""The most spans of one rank index; then short ones are merged until half of them are left."""


def add(track: Track, cause: str, since: float, until: float) -> None:
    """Adds a span behind the last one."""
    if until <= since:
        return
    spans = track.spans
    if not spans:
        spans.append((since, cause))
    elif spans[-1][1] != cause:
        is_short = track.end - spans[-1][0] < track.shortest and len(spans) > 1
        begin = spans.pop()[0] if is_short else max(since, track.end)
        if not spans or spans[-1][1] != cause:
            spans.append((begin, cause))
    track.end = max(track.end, until)
    if len(spans) > MOST_SPANS:
        _thin_out(track)


def _thin_out(track: Track) -> None:
    while len(track.spans) > MOST_SPANS // 2:
        track.shortest *= 2
        track.spans = merged(track.spans, track.end, track.shortest)


def merged(spans: list[tuple[float, str]], end: float, shortest: float) -> list[tuple[float, str]]:
    """The spans without those that are shorter: each of them becomes part of the one before it."""
    kept: list[tuple[float, str]] = []
    for number, (begin, cause) in enumerate(spans):
        until = spans[number + 1][0] if number + 1 < len(spans) else end
        if kept and (until - begin < shortest or kept[-1][1] == cause):
            continue
        kept.append((begin, cause))
    return kept


def within(track: Track, since: float, until: float) -> list[tuple[str, float]]:
    """The causes between two moments, each with its end."""
    ends = [*(begin for begin, _cause in track.spans[1:]), track.end]
    return [(cause, min(end, until)) for (begin, cause), end in zip(track.spans, ends, strict=True)
            if end > since and begin < until]  # fmt: skip
