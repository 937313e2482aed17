"""The annotations that a user may write on a pod (docs/contracts.md §8), parsed at the edge.

A value that cannot be meant is an error that names the annotation and says what it may be: a typo must not train on
other sizes than were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.master.core.checkpoints import save_signal as checkpoints_save_signal
from outrider.master.core.k8s.values import atomic_save, checkpoint_memory
from outrider.master.core.k8s.values.chaos import ALLOWED
from outrider.master.core.k8s.values.limits import MOST_MEMBERS
from outrider.master.core.k8s.values.names import (
    ATOMIC_SAVE,
    CHAOS,
    CHECKPOINT_MEMORY,
    CHECKPOINT_PATH,
    CONTAINER,
    ELASTIC_DATA,
    JOB,
    KEEP_GLOBAL_BATCH,
    MAX,
    MAX_RESTARTS,
    MIGRATION_DIR,
    MIN,
    NODE_CHECK,
    NPROC,
    PER_RANK,
    PYTHONPATH,
    REQUIRE_RESUME,
    SAVE_SIGNAL,
    SCRIPT,
    SPARES,
)

MOST_PROCESSES, MOST_RESTARTS = 1024, 999_999
LABEL = 63
"""Characters of a label's value, which a job's name must be."""
YES, NO = ("true", "enabled", "1"), ("false", "disabled", "0", "")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Asked:
    """None and empty where nothing was asked."""

    job: str
    least: int | None
    most: int | None
    nproc: int | None
    spares: int | None
    node_check: bool
    script: str
    pythonpath: str
    per_rank: bool
    max_restarts: int | None
    container: str
    elastic_data: bool = False
    keep_global_batch: bool = False
    require_resume: bool = False
    migration_dir: str = ""
    checkpoint_memory: int = 0
    """Bytes."""
    checkpoint_path: str = ""
    save_signal: str = ""
    atomic_save: str = ""
    """As the hooks are told."""


def read(annotations: Mapping[str, Any]) -> Asked:
    """Raises ValueError."""
    job = _text(annotations, JOB)
    asked = Asked(
        job=named(job, f"annotation {JOB}") if job else "",
        least=_whole(annotations, MIN, 1, MOST_MEMBERS),
        most=_whole(annotations, MAX, 1, MOST_MEMBERS),
        nproc=_whole(annotations, NPROC, 1, MOST_PROCESSES),
        spares=_whole(annotations, SPARES, 0, MOST_MEMBERS),
        node_check=_yes(annotations, NODE_CHECK),
        script=_text(annotations, SCRIPT),
        pythonpath=_text(annotations, PYTHONPATH),
        per_rank=_yes(annotations, PER_RANK),
        max_restarts=_whole(annotations, MAX_RESTARTS, 0, MOST_RESTARTS),
        container=_text(annotations, CONTAINER),
        elastic_data=_yes(annotations, ELASTIC_DATA),
        keep_global_batch=_yes(annotations, KEEP_GLOBAL_BATCH),
        require_resume=_yes(annotations, REQUIRE_RESUME),
        migration_dir=_text(annotations, MIGRATION_DIR),
        checkpoint_memory=_memory(annotations, CHECKPOINT_MEMORY),
        checkpoint_path=_path(annotations, CHECKPOINT_PATH),
        save_signal=_signal(annotations, SAVE_SIGNAL),
        atomic_save=_atomic(annotations, ATOMIC_SAVE),
    )
    if asked.least is not None and asked.most is not None and asked.least > asked.most:
        raise ValueError(f"annotation {MIN}: {asked.least} is more than the {asked.most} of annotation {MAX}")
    if (chaos := _text(annotations, CHAOS)) not in ("", ALLOWED):
        raise ValueError(
            f"annotation {CHAOS}: {chaos!r} on a pod would break every replacement too; a pod may say {ALLOWED}, and "
            f"faults that are armed belong to the annotations of the ElasticJob itself"
        )
    return asked


def named(job: str, source: str) -> str:
    """The job's name, where it can be a label of its pods and the name of an ElasticJob. Raises ValueError."""
    if len(job) > LABEL or not _NAME.fullmatch(job):
        raise ValueError(
            f"{source}: {job!r} cannot be a job's name: it may have up to {LABEL} lower-case letters, digits, '-' and "
            f"'.', and annotation {JOB} can give another"
        )
    return job


def _text(annotations: Mapping[str, Any], name: str) -> str:
    value = annotations.get(name)
    return "" if value is None else str(value).strip()


def _whole(annotations: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    text = _text(annotations, name)
    if name not in annotations:
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text) or not least <= int(text) <= most:
        raise ValueError(f"annotation {name}: {text!r} must be a whole number from {least} to {most}")
    return int(text)


def _memory(annotations: Mapping[str, Any], name: str) -> int:
    text = _text(annotations, name)
    try:
        return checkpoint_memory.parsed(text) if text else 0
    except ValueError as error:
        raise ValueError(f"annotation {name}: {error}") from error


def _path(annotations: Mapping[str, Any], name: str) -> str:
    try:
        return checkpoint_memory.parsed_path(_text(annotations, name)) if name in annotations else ""
    except ValueError as error:
        raise ValueError(f"annotation {name}: {error}") from error


def _signal(annotations: Mapping[str, Any], name: str) -> str:
    text = _text(annotations, name)
    try:
        return checkpoints_save_signal.parsed(text) if text else ""
    except ValueError as error:
        raise ValueError(f"annotation {name}: {error}") from error


def _atomic(annotations: Mapping[str, Any], name: str) -> str:
    try:
        return atomic_save.of_words(_text(annotations, name))
    except ValueError as error:
        raise ValueError(f"annotation {name}: {error}") from error


def _yes(annotations: Mapping[str, Any], name: str) -> bool:
    text = _text(annotations, name).lower()
    if text not in (*YES, *NO):
        raise ValueError(f'annotation {name}: {text!r} must be "true" or "false"')
    return text in YES
