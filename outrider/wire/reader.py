"""Reads untrusted data into values of declared types.

A dataclass is read from a map, a tuple from an array, `X | None` also from null.

A value that does not fit raises `Wrong`, with the path of the field, the value and what it must be. Unknown fields are
ignored and missing ones get their default: that is how versions are added. The `Format` of the data says how it writes
numbers, texts and arrays. The reader of a type is built only once.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from operator import call
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from outrider.wire.ids import Generation
from outrider.wire.messages.text_limits import ID, PROSE, Longest

Read = Callable[[Any], Any]
"""Returns the value for unpacked data, or raises Wrong."""
LONGEST_QUOTE: Final = 60


class Wrong(Exception):
    """A value that does not fit its field; `path` grows on the way out of nested parts."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__()
        self.path = ""
        found = "Required value" if value is MISSING else f"Invalid value: {quoted(value)}"
        self.problem = f"{found}: must be {expected}"

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}".removeprefix(".")


def quoted(value: object) -> str:
    """A value in the form in which errors show it."""
    if isinstance(value, tuple | list | dict):
        return "a map" if isinstance(value, dict) else "an array"
    shown = repr(value) if isinstance(value, str | bytes | int | float | None) else type(value).__name__
    return shown if len(shown) <= LONGEST_QUOTE else f"{shown[:LONGEST_QUOTE]}…"


# -- single values
#
def whole(low: int, high: int, expected: str = "") -> Read:
    """Reads a whole number within bounds."""
    expected = expected or f"a whole number from {low} to {high}"

    def read_whole(value: Any) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        raise Wrong(value, expected)

    return read_whole


integer: Final = whole(-(1 << 63), (1 << 63) - 1, "an integer of 64 bits")


def finite(value: Any) -> Any:
    """Reads a float, for example seconds, that is neither infinite nor NaN."""
    if type(value) is float and value - value == 0.0:
        return value
    if type(value) is int:
        return float(value)
    raise Wrong(value, "a finite number")


def flag(value: Any) -> Any:
    if value is True or value is False:
        return value
    raise Wrong(value, "true or false")


def text(most: int = sys.maxsize, cut: str | None = None) -> Read:
    """Reads a text. A longer one is refused, or with `cut` it is cut and ends with that."""
    expected = f"text of at most {most} characters"

    def read_text(value: Any) -> Any:
        if type(value) is str:
            if len(value) <= most:
                return value
            if cut is not None:
                return value[: most - len(cut)] + cut
            raise Wrong(f"{len(value)} characters of text", expected)
        raise Wrong(value, "text")

    return read_text


def generation(array: type[Any], parts: int, highest: int) -> Read:
    """Reads a generation from `[term, number]`, an array of at most `parts` parts."""

    def read_generation(value: Any) -> Any:
        if type(value) is array and 2 <= len(value) <= parts:
            term, number = value[0], value[1]
            if type(term) is int and type(number) is int and 0 <= term <= highest and 0 <= number <= highest:
                return Generation(term, number)
        raise Wrong(value, "a generation: [term, number]")

    return read_generation


# -- parts
#
def optional(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def row(read: Read, array: type[Any], most: int = sys.maxsize) -> Read:
    """Reads an array of any length whose parts are all read by `read`."""
    expected = "an array" if most == sys.maxsize else f"an array of at most {most}"

    def read_row(value: Any) -> Any:
        if type(value) is not array or len(value) > most:
            raise Wrong(value, expected)
        return _all(map(read, value)) if value else ()

    return read_row


def parts(
    readers: tuple[Read, ...], array: type[Any], least: int, most: int, make: Callable[[Any], Any] = tuple
) -> Read:
    """Reads an array with a separate reader for each part; further parts are ignored."""

    def read_parts(value: Any) -> Any:
        if type(value) is not array or not least <= len(value) <= most:
            raise Wrong(value, f"an array of {len(readers)}")
        return make(_all(map(call, readers, value)))

    return read_parts


def _all(read: Iterator[Any]) -> tuple[Any, ...]:
    """All values of an iterator; the index of a wrong one is added to the path of its error."""
    found: list[Any] = []
    try:
        for value in read:
            found.append(value)
    except Wrong as wrong:
        wrong.path = f"[{len(found)}]{wrong.path}"
        raise
    return tuple(found)


def entry(line: Mapping[str, Any], name: str, read: Read, default: Any = MISSING) -> Any:
    """Reads one field of a map that is not read as a whole into a dataclass."""
    value = line.get(name, MISSING)
    if value is MISSING and default is not MISSING:
        return default
    try:
        return read(value)
    except Wrong as wrong:
        wrong.path = f".{name}{wrong.path}"
        raise


# -- types
#
@dataclass(frozen=True, slots=True)
class Format:
    """How one kind of data writes values of each type."""

    scalars: Mapping[Any, Read]
    """The readers of int, float and other single values."""
    text: Callable[[Longest], Read]
    """Makes the reader of a text with a declared limit."""
    array: type[Any]
    """The type of unpacked arrays: tuple or list."""
    may_grow: bool = False
    """Whether an array with one part per field may have further parts, from a newer version."""
    absent: Mapping[Any, Any] = field(default_factory=dict)
    """By type, the value of a missing field without a default; for other types a missing field is Wrong."""

    def reader(self, hint: Any) -> Read:
        """The reader of values of this type; TypeError if the type is not supported."""
        given, hint = hint, plain(hint)
        if hint is str:
            return self.text(longest(given))
        if hint in self.scalars:
            return self.scalars[hint]
        if is_dataclass(hint):
            return self._map(hint)
        if is_union(hint):
            (inner,) = (option for option in get_args(hint) if option is not types.NoneType)
            return optional(self.reader(inner))
        if get_origin(hint) is tuple:
            items = get_args(hint)
            return row(self.reader(items[0]), self.array) if items[-1] is Ellipsis else self._array(items, tuple)
        if issubclass(hint, tuple):  # a NamedTuple: its last parts may have defaults
            items = tuple(get_type_hints(hint, include_extras=True).values())
            return self._array(items, lambda values: hint(*values), len(items) - len(hint._field_defaults))
        raise TypeError(f"{hint}: must be a type that fields may have")

    def _array(self, hints: tuple[Any, ...], make: Callable[[Any], Any], least: int | None = None) -> Read:
        low, high = len(hints) if least is None else least, sys.maxsize if self.may_grow else len(hints)
        return parts(tuple(self.reader(hint) for hint in hints), self.array, low, high, make)

    def _map(self, cls: Any) -> Read:
        hints = get_type_hints(cls, include_extras=True)
        plan = tuple(
            (each.name, self.reader(hints[each.name]), self._default(each.default, hints[each.name]))
            for each in fields(cls)
        )

        def read_map(value: Any) -> Any:
            if type(value) is not dict:
                raise Wrong(value, "a map")
            get, name, values = value.get, "", []
            try:
                for name, read, default in plan:
                    one = get(name, MISSING)
                    if one is not MISSING or default is MISSING:
                        values.append(read(one))
                    else:
                        values.append(default)
            except Wrong as wrong:
                wrong.path = f".{name}{wrong.path}"
                raise
            return cls(*values)

        return read_map

    def _default(self, declared: Any, hint: Any) -> Any:
        return self.absent.get(plain(hint), MISSING) if declared is MISSING else declared


def plain(hint: Any) -> Any:
    """The type behind a NewType or an annotation."""
    while hasattr(hint, "__supertype__") or get_origin(hint) is Annotated:
        hint = hint.__supertype__ if hasattr(hint, "__supertype__") else get_args(hint)[0]
    return hint


def longest(hint: Any) -> Longest:
    """The limit of a text: the annotated one, else that of ids or of prose."""
    if get_origin(hint) is Annotated:
        return next(each for each in get_args(hint)[1:] if isinstance(each, Longest))
    return ID if hasattr(hint, "__supertype__") else PROSE


def is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)
