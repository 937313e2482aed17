"""What is read from the values of single flags; a ValueError says what may be there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.master.core import quantities
from outrider.master.core.k8s.elasticjob import metrics as elasticjob_metrics
from outrider.master.core.k8s.values import chaos, checkpoint_memory

SpecFields = Mapping[str, Any]
"""Of a JobSpec, by their names there; those that were not given are missing."""
PHASES = ("step", "init", "checkpoint", "eval")
LONGEST = 7 * 24 * 3600
"""Seconds."""
LEAST_CPUS, LEAST_MEMORY = 0.01, 32 << 20
"""The kernel's least quota, and less memory than a Python needs to begin."""
DEFAULT = "default"


def armed(values: tuple[str, ...]) -> tuple[chaos.Armed, ...]:
    """`--chaos FAULT@rank-index=N`, which may be given again, and may name several with commas as the annotation
    does."""
    return tuple(each for value in values for each in chaos.asked(value))


def metrics_pattern(value: str) -> str:
    """`--metrics 'loss (?P<loss>\\S+)'`: which lines of rank 0's log say how the training goes."""
    metrics = {} if value == DEFAULT else {"logPattern": value}
    for wrong in elasticjob_metrics.objections(metrics, ""):
        raise ValueError(wrong.partition(": ")[2])
    return elasticjob_metrics.asked(metrics)


def checkpoint_path(value: str) -> str:
    found = checkpoint_memory.parsed_path(value)
    if Path(found).is_dir():
        raise ValueError(f"{value!r} is a folder; {checkpoint_memory.PATH_MAY_BE}")
    return found


def member_cpus(value: float) -> float:
    if not value >= LEAST_CPUS:
        raise ValueError(f"{value:g}: a member needs {LEAST_CPUS} cpus or more")
    return value


def member_memory(value: str) -> int:
    """Bytes."""
    size = quantities.parsed(value)
    if size is None:
        raise ValueError(f"{value!r} is no amount of memory; it may be 512Mi, 1.5Gi or a number of bytes")
    if size < LEAST_MEMORY:
        raise ValueError(f"{value}: a member needs {quantities.written(LEAST_MEMORY)} or more")
    return size


def hang_limits(value: str) -> SpecFields:
    """How long a rank may make no progress, from `--hang-after 120`, `step=120,init=1800` or `off`. A number alone is
    that of training steps."""
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
                f"{part.strip()!r} in {value!r} is no limit; it may be off, SECONDS, or PHASE=SECONDS with "
                f"{', '.join(PHASES)}, several divided by commas (step=120,init=1800)"
            )
        if f"hang_{phase}" in found:
            raise ValueError(f"{value!r} says {phase} twice")
        found[f"hang_{phase}"] = _seconds(limit, f"{phase}: ")
    return found


def _seconds(word: str, phase: str = "") -> int:
    if not re.fullmatch(r"\d{1,9}", word) or not 1 <= int(word) <= LONGEST:
        raise ValueError(f"{phase}{word!r} is no whole number of seconds from 1 to {LONGEST}, nor off")
    return int(word)
