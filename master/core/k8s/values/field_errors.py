"""Errors about a field, in the form in which the API server reports its own.

`kubectl apply` prints `spec.x: Invalid value: "v": must be …`, so users and their tools know this form:
https://github.com/kubernetes/apimachinery/blob/master/pkg/util/validation/field/errors.go. With an empty path an error
starts at `Invalid value`: the caller puts the name of a flag or an annotation before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

LONGEST = 40
"""Maximum number of characters of a value in an error."""


def invalid(path: str, value: object, why: str) -> str:
    return _at(path, f"Invalid value: {quoted(value)}: {why}")


def unsupported(path: str, value: object, supported: Iterable[object]) -> str:
    return _at(path, f"Unsupported value: {quoted(value)}: supported values: {', '.join(map(quoted, supported))}")


def required(path: str, why: str = "") -> str:
    return _at(path, f"Required value: {why}" if why else "Required value")


def forbidden(path: str, why: str) -> str:
    return _at(path, f"Forbidden: {why}")


def duplicate(path: str, value: object) -> str:
    return _at(path, f"Duplicate value: {quoted(value)}")


def too_long(path: str, most: int, unit: str = "characters") -> str:
    return _at(path, f"Too long: may not be more than {most} {unit}")


def too_many(path: str, count: int, most: int, noun: str = "items") -> str:
    return _at(path, f"Too many: {count}: must have at most {most} {noun}")


def quoted(value: object) -> str:
    """The value as JSON, on one line: a string has quotes, null is `null`, a long value is cut."""
    if isinstance(value, str):
        return _json(value if len(value) <= LONGEST else f"{value[: LONGEST - 3]}...")
    text = _json(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(value, default=str)


def _at(path: str, error: str) -> str:
    return f"{path}: {error}" if path else error
