"""Parts of a document of any shape: the reader gets a value of the type that it needs."""

from __future__ import annotations

from typing import Any

from outrider.master.core.k8s.values.names import Document


def mapping(value: object) -> Document:
    """The value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def entries(value: object) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def whole(value: object) -> int | None:
    """The value if it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def shown(value: object) -> str:
    """A value as a short piece of a sentence or of a path; `field_errors.quoted` is for errors."""
    text = "nothing" if value is None else value if isinstance(value, str) and value else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
