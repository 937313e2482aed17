"""Parts of a document, taken as they come. Whatever is there, a reader gets the kind of value that it can use."""

from __future__ import annotations

from typing import Any

from outrider.master.core.k8s.values.names import Document


def mapping(value: object) -> Document:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def entries(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def shown(value: object) -> str:
    """A value as it stands in a sentence: short, whatever was written."""
    text = "nothing" if value is None else value if isinstance(value, str) and value else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
