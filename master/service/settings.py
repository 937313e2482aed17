"""What a master is told at its start, from its environment."""

from __future__ import annotations

import dataclasses
import math
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from outrider.master.core.spec import Entry, JobSpec, Rule
from outrider.runtime.curve_keys import KeyPair, key_pair_of
from outrider.runtime.settings import Environment, WrongSetting
from outrider.wire.ids import JobName

ROWS: dict[Any, tuple[Any, ...]] = {Rule: (list, str, list, str, str, int, (int, float), bool), Entry: (str, int)}
"""Fields of a JobSpec that are rows of these parts."""


@dataclass(frozen=True, slots=True)
class Settings:
    job: JobName
    job_uid: str
    """The marker of every process of this run of the job; empty where nothing is to be swept."""
    folder: Path
    spec: JobSpec
    bind: str
    keys: KeyPair
    token: str
    node_socket: Path
    lifeline: int | None
    log: str


def platform_of(environment: Environment) -> str:
    return environment.choice("OUTRIDER_PLATFORM", ("local", "kubernetes"), "local")


def read(environment: Environment) -> Settings:
    """Raises WrongSetting, which names the variable and says what it may be."""
    platform_of(environment)
    spec = spec_of(environment.document("OUTRIDER_SPEC"))
    return Settings(
        job=JobName(environment.text("OUTRIDER_JOB", spec.name)),
        job_uid=environment.text("OUTRIDER_JOB_UID", ""),
        folder=environment.folder("OUTRIDER_JOB_DIR"),
        spec=spec,
        bind=environment.text("OUTRIDER_BIND", "tcp://127.0.0.1:*"),
        keys=_keys(environment),
        token=environment.content("OUTRIDER_TOKEN_FILE"),
        node_socket=Path(environment.text("OUTRIDER_NODE_SOCKET", what="the path of the node's socket")),
        lifeline=environment.optional_integer("OUTRIDER_LIFELINE_FD", low=3, high=1 << 20),
        log=environment.choice("OUTRIDER_LOG", ("json", "text"), "text"),
    )


def spec_of(document: dict[str, object]) -> JobSpec:
    """A JobSpec from its JSON; WrongSetting names the field that cannot be."""
    hints = get_type_hints(JobSpec)
    unknown = sorted(set(document) - set(hints))
    if unknown:
        raise WrongSetting(f"OUTRIDER_SPEC: {', '.join(unknown)} is no field of a job: there are {', '.join(hints)}")
    for name, value in document.items():
        if not _may_be(value, hints[name]):
            raise WrongSetting(f"OUTRIDER_SPEC: {name}={value!r} has the wrong type")
    missing = [field.name for field in dataclasses.fields(JobSpec) if _is_missing(field, document)]
    if missing:
        raise WrongSetting(f"OUTRIDER_SPEC: {', '.join(missing)} must be given")
    made: dict[str, Any] = {name: _of_json(value, hints[name]) for name, value in document.items()}
    spec = JobSpec(**made)
    for name in ("hang_step", "hang_init", "hang_checkpoint", "hang_eval"):
        limit = getattr(spec, name)
        if limit is not None and not 0 < limit < math.inf:
            raise WrongSetting(f"OUTRIDER_SPEC: {name}={limit} must be a number of seconds above 0, or null")
    if not 1 <= spec.min_members <= spec.replicas <= spec.max_members:
        raise WrongSetting(
            f"OUTRIDER_SPEC: min_members={spec.min_members}, replicas={spec.replicas}, max_members={spec.max_members}: "
            "they must be at least 1 and in this order"
        )
    return spec


def _of_json(value: object, hint: Any) -> object:
    """A list is a tuple here; one of rows has what the rows are."""
    if not isinstance(value, list):
        return value
    kind = get_args(hint)[0]
    return tuple(kind(*map(_tuples, each)) if kind in ROWS else _tuples(each) for each in value)


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _is_row(value: object, kinds: tuple[Any, ...]) -> bool:
    """What stands behind the first two may be left out."""
    if not isinstance(value, list) or not 2 <= len(value) <= len(kinds):
        return False
    return all(isinstance(part, kind) for part, kind in zip(value, kinds, strict=False))


def _is_missing(field: dataclasses.Field[object], document: dict[str, object]) -> bool:
    return field.default is dataclasses.MISSING and field.name not in document


def _may_be(value: object, hint: Any) -> bool:
    hint = getattr(hint, "__supertype__", hint)
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return isinstance(value, list) and all(
            _is_row(v, ROWS[inner]) if inner in ROWS else _may_be(v, inner) for v in value
        )
    options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, bool):
        return bool in options
    return any(isinstance(value, (int, float) if option is float else option) for option in options)


def _keys(environment: Environment) -> KeyPair:
    try:
        return key_pair_of(environment.content("OUTRIDER_MASTER_KEY_FILE"))
    except ValueError as error:
        raise WrongSetting(f"OUTRIDER_MASTER_KEY_FILE: {error}") from error
