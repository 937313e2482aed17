"""Parses the values of single flags; a ValueError says what the value must be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.master.core import quantities
from outrider.master.core.k8s.elasticjob import metrics as elasticjob_metrics
from outrider.master.core.k8s.values import chaos, checkpoint_memory

SpecFields = Mapping[str, Any]
"""Fields of a JobSpec by name; fields whose flag was not given are missing."""
PHASES = ("step", "init", "checkpoint", "eval")
LONGEST = 7 * 24 * 3600
"""The longest hang limit, in seconds."""
LEAST_CPUS, LEAST_MEMORY = 0.01, 32 << 20
"""The least limits of a member: the kernel's least CPU quota, and the bytes below which no Python starts."""
DEFAULT = "default"


def armed(values: tuple[str, ...]) -> tuple[chaos.Armed, ...]:
    """The faults of `--chaos FAULT@rank-index=N`, which may be repeated, and may list several faults with commas as the
    annotation does."""
    return tuple(each for value in values for each in chaos.all_armed(value))


def metrics_pattern(value: str) -> str:
    """The regular expression of `--metrics 'loss (?P<loss>\\S+)'`: which lines of rank 0's log have metrics."""
    metrics = {} if value == DEFAULT else {"logPattern": value}
    for wrong in elasticjob_metrics.objections(metrics, ""):
        raise ValueError(wrong.partition(": ")[2])
    return elasticjob_metrics.pattern_of(metrics)


def checkpoint_path(value: str) -> str:
    found = checkpoint_memory.parsed_path(value)
    if Path(found).is_dir():
        raise ValueError(f"must be a file, not a folder; {checkpoint_memory.PATH_MAY_BE}")
    return found


def member_cpus(value: float) -> float:
    if not value >= LEAST_CPUS:
        raise ValueError(f"must be at least {LEAST_CPUS}")
    return value


def member_memory(value: str) -> int:
    """The limit in bytes."""
    size = quantities.parsed(value)
    if size is None:
        raise ValueError("must be an amount of memory, such as 512Mi, 1.5Gi or a number of bytes")
    if size < LEAST_MEMORY:
        raise ValueError(f"must be at least {quantities.written(LEAST_MEMORY)}")
    return size


def hang_limits(value: str) -> SpecFields:
    """How long a rank may make no progress, from `--hang-after 120`, `step=120,init=1800` or `off`. A number alone
    limits training steps."""
    word = value.strip()
    if word == "off":
        return {"hang_detection": False}
    if re.fullmatch(r"[+-]?[\d.]+", word):
        return {"hang_step": _seconds(word)}
    found: dict[str, int] = {}
    for part in word.split(","):
        phase, equals, limit = (each.strip() for each in part.partition("="))
        if not equals or phase not in PHASES:
            raise ValueError(
                f"{part.strip()!r}: must be off, SECONDS, or PHASE=SECONDS with a phase of "
                f"{', '.join(PHASES)}, several separated by commas (step=120,init=1800)"
            )
        if f"hang_{phase}" in found:
            raise ValueError(f"{phase}: must be given only once")
        found[f"hang_{phase}"] = _seconds(limit, f"{phase}={limit}: ")
    return found


def _seconds(word: str, phase: str = "") -> int:
    if not re.fullmatch(r"\d{1,9}", word) or not 1 <= int(word) <= LONGEST:
        raise ValueError(f"{phase}must be a whole number of seconds from 1 to {LONGEST}, or off")
    return int(word)
