"""The annotations that a user may set on a pod (docs/contracts.md §8), parsed at the edge.

An unsupported value is a field error of the annotation: a typo must not start training with another size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.master.core.checkpoints import save_signal as checkpoints_save_signal
from outrider.master.core.k8s.values import atomic_save, checkpoint_memory, save_signals
from outrider.master.core.k8s.values.chaos import ALLOWED
from outrider.master.core.k8s.values.field_errors import invalid, unsupported
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
"""Maximum length of a job's name in characters: the name is also a label's value."""
YES, NO = ("true", "enabled", "1"), ("false", "disabled", "0", "")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Requested:
    """The requests in a pod's annotations; None or empty if an annotation is not set."""

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
    """Size of the memory for in-memory checkpoints in bytes."""
    checkpoint_path: str = ""
    save_signal: str = ""
    atomic_save: str = ""
    """Value of OUTRIDER_ATOMIC_SAVE for the hooks."""


def read(annotations: Mapping[str, Any]) -> Requested:
    """The requests in the annotations of a pod. Raises ValueError with a field error."""
    job = _text(annotations, JOB)
    requested = Requested(
        job=named(job, path_of(JOB)) if job else "",
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
    if requested.least is not None and requested.most is not None and requested.least > requested.most:
        raise ValueError(
            invalid(path_of(MIN), requested.least, f"must be at most {requested.most}, the value of {MAX}")
        )
    if (chaos := _text(annotations, CHAOS)) not in ("", ALLOWED):
        raise ValueError(
            unsupported(path_of(CHAOS), chaos, (ALLOWED,))
            + " (on a pod a fault would break every replacement too; arm faults by an annotation of the ElasticJob)"
        )
    return requested


def path_of(annotation: str) -> str:
    """The path of an annotation for field errors."""
    return f"metadata.annotations[{annotation}]"


def named(job: str, path: str) -> str:
    """The name, if it can be a job's: a label of its pods and the name of an ElasticJob. Raises ValueError."""
    if len(job) > LABEL or not _NAME.fullmatch(job):
        raise ValueError(
            invalid(
                path,
                job,
                f"must have up to {LABEL} lower-case letters, digits, '-' and '.' to be a job's name; "
                f"the annotation {JOB} can set another name",
            )
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
        raise ValueError(invalid(path_of(name), text, f"must be an integer between {least} and {most}"))
    return int(text)


def _memory(annotations: Mapping[str, Any], name: str) -> int:
    text = _text(annotations, name)
    try:
        return checkpoint_memory.parsed(text) if text else 0
    except ValueError as error:
        raise ValueError(f"{path_of(name)}: {error}") from error


def _path(annotations: Mapping[str, Any], name: str) -> str:
    try:
        return checkpoint_memory.parsed_path(_text(annotations, name)) if name in annotations else ""
    except ValueError as error:
        raise ValueError(f"{path_of(name)}: {error}") from error


def _signal(annotations: Mapping[str, Any], name: str) -> str:
    text = _text(annotations, name)
    try:
        return checkpoints_save_signal.parsed(text) if text else ""
    except ValueError:
        raise ValueError(save_signals.error(path_of(name), text)) from None


def _atomic(annotations: Mapping[str, Any], name: str) -> str:
    try:
        return atomic_save.of_words(_text(annotations, name))
    except ValueError as error:
        raise ValueError(f"{path_of(name)}: {error}") from error


def _yes(annotations: Mapping[str, Any], name: str) -> bool:
    text = _text(annotations, name).lower()
    if text not in (*YES, *NO):
        raise ValueError(unsupported(path_of(name), text, ("true", "false")))
    return text in YES
