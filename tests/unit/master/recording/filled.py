"""Values of any declared type whose texts a test chooses."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NewType, get_args, get_origin, get_type_hints

from outrider.master.recording import fields, types
from outrider.wire import reader
from outrider.wire.ids import Generation

Text = Callable[[str], str]
"""Returns the text for a field of this kind (`fields`)."""
ID = "worker-0"
DEEPEST = 12


def holds_text(hint: Any) -> bool:
    """Whether a field of this type may hold a text whose type does not say that it is an id."""
    if hint is str or hint in (object, Any):
        return True
    if isinstance(hint, NewType) or types.is_type(hint):
        return False
    return any(holds_text(each) for each in get_args(hint) if each is not Ellipsis)


def texts() -> Iterator[str]:
    """Every field of every known type that may hold a text, as `fields.KINDS` names it."""
    for name, kind in types.known().items():
        for field, hint in get_type_hints(kind, include_extras=True).items():
            if field in _names(kind) and holds_text(hint):
                yield f"{name}.{field}"


def _names(kind: Any) -> tuple[str, ...]:
    return kind._fields if hasattr(kind, "_fields") else tuple(each.name for each in dataclasses.fields(kind))


def of(kind: Any, text: Text, field: str = fields.TEXT, depth: int = 0) -> Any:
    """A value of this type, in which every collection has one item, with these texts."""
    if isinstance(kind, NewType) and kind.__supertype__ is str:
        return ID
    kind = reader.plain(kind)
    if kind is str or kind in (object, Any):
        return text(field)
    if kind in (int, float, bool):
        return kind(1)
    if kind is Generation:
        return Generation(1, 1)
    if types.is_type(kind):
        return _filled(kind, text, depth)
    if reader.is_union(kind):
        options = [each for each in get_args(kind) if each is not type(None)]
        return None if depth > DEEPEST else of(options[0], text, field, depth + 1)
    return _collection(get_origin(kind) or kind, get_args(kind), lambda each: of(each, text, field, depth + 1))


def _filled(kind: Any, text: Text, depth: int) -> Any:
    name, hints = types.name_of(kind), get_type_hints(kind, include_extras=True)
    values = {each: of(hints[each], text, fields.kind_of(name, each), depth + 1) for each in _names(kind)}
    if not dataclasses.is_dataclass(kind):
        return kind(**values)
    made = kind.__new__(kind)
    for each, value in values.items():
        object.__setattr__(made, each, value)
    return made


def _collection(origin: Any, arguments: tuple[Any, ...], item: Callable[[Any], Any]) -> Any:
    if origin is Counter:
        return Counter({item(arguments[0]): 1})
    if origin is tuple:
        return tuple(item(each) for each in arguments if each is not Ellipsis)
    if issubclass(origin, Mapping):
        return {item(arguments[0]): item(arguments[1])}
    return deque([item(arguments[0])], 5) if origin is deque else origin([item(arguments[0])])
