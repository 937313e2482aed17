"""Reads and shows the numbers in log lines that match a pattern (`scaling.log_metrics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any

from outrider.master.core.state.scaling import Metrics
from outrider.master.core.text import moment
from outrider.wire.messages.log_lines import Group

NAMES = ("epoch", "step", "latency", "latency_ms", "rate", "loss", "accuracy", "noise")
"""The group names that a pattern may have."""
RANGES = {
    "latency": (1e-6, 1e6),
    "latency_ms": (1e-3, 1e9),
    "rate": (1e-6, 1e6),
    "step": (0.0, 1e15),
    "epoch": (0.0, 1e9),
    "noise": (1e-6, 1e15),
}
"""The lowest and highest valid value of each name; beyond them the number must mean something else.

A latency is the seconds of a step, a rate the steps per second, noise the gradient noise scale in samples.
"""
SECONDS: dict[str, Callable[[float], float]] = {"latency_ms": lambda each: each / 1000, "rate": lambda each: 1 / each}
"""Conversions of other names to a latency, in seconds."""
ANY = (float("-inf"), float("inf"))


def read(groups: Iterable[Group]) -> tuple[dict[str, float], dict[str, str]]:
    """The valid numbers by name, and the texts of the invalid ones."""
    values: dict[str, float] = {}
    wrong: dict[str, str] = {}
    for name, text in ((group.name, group.text) for group in groups):
        value = _number(text)
        least, most = RANGES.get(name, ANY)
        if value is None or not least <= value <= most:
            wrong[name] = text
        else:
            values[name] = value
    for name in SECONDS.keys() & values.keys():
        values.setdefault("latency", SECONDS[name](values[name]))
    return values, wrong


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def document(metrics: Metrics, pattern: str, offset: float) -> dict[str, Any]:
    """The status's `metrics`; empty without a pattern. `offset`: Unix time minus the core's clock, in seconds."""
    if not pattern:
        return {}
    at = None if metrics.at is None else moment(metrics.at + offset)
    return {"metrics": {**metrics.values, "line": metrics.line, "time": at, "problem": metrics.problem}}


def shown(values: Mapping[str, Any]) -> str:
    """The numbers in a few words; empty if there are none."""
    return ", ".join(f"{name} {values[name]:g}" for name in NAMES if name in values)
