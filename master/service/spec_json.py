"""A JobSpec as JSON: `outrider run` writes it, and the master that it starts reads it (OUTRIDER_SPEC)."""

from __future__ import annotations

import json
import math
import types
from dataclasses import MISSING, fields
from typing import Any, get_args, get_origin, get_type_hints

from outrider.master.core.spec import JobSpec
from outrider.runtime.settings import WrongSetting


def document_of(spec: JobSpec) -> str:
    """What differs from the defaults."""
    values = ((each, getattr(spec, each.name)) for each in fields(spec))
    return json.dumps({each.name: value for each, value in values if value != each.default})


def spec_of(document: dict[str, object]) -> JobSpec:
    """A JobSpec from its JSON; WrongSetting names the field that cannot be."""
    hints = get_type_hints(JobSpec)
    unknown = sorted(set(document) - set(hints))
    if unknown:
        raise WrongSetting(f"OUTRIDER_SPEC: {', '.join(unknown)} is no field of a job: there are {', '.join(hints)}")
    values: dict[str, Any] = {}
    for name, value in document.items():
        try:
            values[name] = _of_json(value, hints[name])
        except TypeError as wrong:
            raise WrongSetting(f"OUTRIDER_SPEC: {name}={value!r} has the wrong type") from wrong
    missing = [each.name for each in fields(JobSpec) if each.default is MISSING and each.name not in document]
    if missing:
        raise WrongSetting(f"OUTRIDER_SPEC: {', '.join(missing)} must be given")
    spec = JobSpec(**values)
    for name in ("hang_step", "hang_init", "hang_checkpoint", "hang_eval"):
        limit = values.get(name)
        if limit is not None and not 0 < limit < math.inf:
            raise WrongSetting(f"OUTRIDER_SPEC: {name}={limit} must be a number of seconds above 0, or null")
    if not 1 <= spec.min_members <= spec.replicas <= spec.max_members:
        raise WrongSetting(
            f"OUTRIDER_SPEC: min_members={spec.min_members}, replicas={spec.replicas}, max_members={spec.max_members}: "
            "they must be at least 1 and in this order"
        )
    return spec


def _of_json(value: object, hint: Any) -> Any:
    """The value as a field of this type has it: a tuple, named or not, is a list in JSON. TypeError: it is of another
    type."""
    kind = getattr(hint, "__supertype__", hint)
    if isinstance(kind, types.UnionType):  # X | None
        return None if value is None else _of_json(value, get_args(kind)[0])
    if isinstance(value, list) and get_origin(kind) is tuple:
        inner, *more = get_args(kind)
        return tuple(_parts(value, (inner,) * len(value) if more == [...] else (inner, *more)))
    if isinstance(value, list) and issubclass(kind, tuple):  # a NamedTuple: its last parts may have defaults
        return kind(*_parts(value, tuple(get_type_hints(kind).values())[: len(value)]))
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise TypeError(f"{value!r} is not of type {kind}")


def _parts(values: list[object], hints: tuple[Any, ...]) -> list[Any]:
    if len(values) != len(hints):
        raise TypeError(f"{values!r} has not {len(hints)} parts")
    return [_of_json(value, hint) for value, hint in zip(values, hints, strict=True)]
