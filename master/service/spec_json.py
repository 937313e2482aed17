"""A JobSpec as JSON: `outrider run` writes it, and the master that it starts reads it (OUTRIDER_SPEC)."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, fields

from outrider.master.core.spec import JobSpec
from outrider.runtime.settings import WrongSetting
from outrider.wire import reader


def document_of(spec: JobSpec) -> str:
    """The fields of the spec that differ from their defaults, as JSON."""
    values = ((each, getattr(spec, each.name)) for each in fields(spec))
    return json.dumps({each.name: value for each, value in values if value != each.default})


def _number(value: object) -> object:
    """A number, unchecked; its range is checked for each field below."""
    if type(value) is int or type(value) is float:
        return value
    raise reader.Wrong(value, "a number")


_FORMAT = reader.Format({int: reader.integer, float: _number, bool: reader.flag}, lambda _: reader.text(), list)
_read = _FORMAT.reader(JobSpec)


def spec_of(document: dict[str, object]) -> JobSpec:
    """A JobSpec from its JSON. Raises WrongSetting, which names the invalid field."""
    names = [each.name for each in fields(JobSpec)]
    unknown = sorted(set(document) - set(names))
    if unknown:
        raise WrongSetting(f"OUTRIDER_SPEC: unknown field {', '.join(unknown)}: supported fields: {', '.join(names)}")
    missing = [each.name for each in fields(JobSpec) if each.default is MISSING and each.name not in document]
    if missing:
        raise WrongSetting(f"OUTRIDER_SPEC: {', '.join(missing)}: Required value")
    try:
        spec: JobSpec = _read(document)
    except reader.Wrong as wrong:
        raise WrongSetting(f"OUTRIDER_SPEC: {wrong}") from None
    for name in ("hang_step", "hang_init", "hang_checkpoint", "hang_eval"):
        limit = getattr(spec, name)
        if limit is not None and not 0 < limit < math.inf:
            raise WrongSetting(
                f"OUTRIDER_SPEC: {name}: Invalid value: {limit}: must be seconds greater than 0, or null"
            )
    if not 1 <= spec.min_members <= spec.replicas <= spec.max_members:
        raise WrongSetting(
            f"OUTRIDER_SPEC: min_members={spec.min_members}, replicas={spec.replicas}, max_members={spec.max_members}: "
            "must be at least 1, and each must not be greater than the next"
        )
    return spec
