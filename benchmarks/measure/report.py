"""How results are shown: medians and maxima, a table that reads in a terminal and in Markdown, and JSON beside it."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent.parent / "out"


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"


def middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def spread(values: Sequence[float]) -> str:
    """Median and maximum."""
    return f"{statistics.median(values):.2f} s, max {max(values):.2f} s" if values else "–"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def machine() -> dict[str, Any]:
    """The machine and the time of a measurement."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load": list(os.getloadavg()),
    }


def write(name: str, result: dict[str, Any]) -> Path:
    """Keep a result under benchmarks/out."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
    return path
