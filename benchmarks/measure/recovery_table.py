"""The recovery benchmark's results as a table: one fault a line, medians and maxima side by side."""

from __future__ import annotations

from collections.abc import Sequence

from measure.report import middle, spread, table
from measure.scenarios import Repeat, Scenario


def summary(results: Sequence[Repeat], scenarios: Sequence[Scenario]) -> str:
    rows = [_row(scenario, results) for scenario in scenarios]
    starts = [[r.start for r in results if r.launcher == n and r.start is not None] for n in ("outrider", "torchrun")]
    rows.append(["start, to the first step of every rank", *map(spread, starts), _ratio(*starts), loads(results)])
    return table(["fault, to the first step of every rank", "Outrider", "torchrun", "ratio", "load"], rows)


def _row(scenario: Scenario, results: Sequence[Repeat]) -> list[str]:
    here = [r for r in results if r.scenario == scenario.name]
    ours = [r for r in here if r.launcher == "outrider"]
    peers = [r for r in here if r.launcher == "torchrun"]
    return [scenario.title, cell(ours), cell(peers), _ratio(good(ours), good(peers)), loads(here)]


def good(repeats: Sequence[Repeat]) -> list[float]:
    """The recoveries that count: nothing was wrong with the world that followed."""
    return [r.recovery for r in repeats if r.recovery is not None and not r.wrong]


def cell(repeats: Sequence[Repeat]) -> str:
    """Median and maximum of the good ones, and how many were not good."""
    if not repeats:
        return "–"
    values = good(repeats)
    if not values:
        return repeats[0].wrong[0]
    bad = len(repeats) - len(values)
    return spread(values) + (f" ({bad} of {len(repeats)} went wrong)" if bad else "")


def _ratio(ours: Sequence[float], peers: Sequence[float]) -> str:
    """How many times longer the peer takes, by medians."""
    mine, theirs = middle(ours), middle(peers)
    return f"{theirs / mine:.1f} ×" if mine and theirs else "–"


def loads(results: Sequence[Repeat]) -> str:
    values = [r.load for r in results if r.load]
    return f"{min(values):.1f}–{max(values):.1f}" if values else "–"
