"""Durability of the State's fields: each declares what the next master gets of it.

The type of a durable value defines how it is written: records, tuples and collections as lists, a mapping with its keys
as texts, a dataclass within a record as elements of that record's list. A reader leaves missing values at their
defaults and ignores unknown ones, because a master may follow an older or a newer one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, NewType, get_args, get_origin, get_type_hints

Moment = Annotated[float, "moment"]
"""A past moment by this master's clock; -inf: never. It is written as a unix time, because another process has another
clock. If the writer's clock was ahead, a reader takes the present moment instead of a future one."""
Deadline = Annotated[float, "deadline"]
"""A future moment by this master's clock, written as a unix time."""
AS_IT_IS = (object, dict[str, object])


def in_order(held: dict[Any, Any]) -> dict[Any, Any]:
    return dict(sorted(held.items()))


class Clock(NamedTuple):
    now: float
    offset: float
    """Seconds to add to `now` for the wall clock."""


@dataclass(frozen=True, slots=True)
class Durability:
    kind: str
    key: str = ""
    is_shared: bool = False
    is_rest: bool = False
    is_rows: bool = False
    outlives_end: bool = False
    trim: Callable[[Any], Any] = lambda value: value


def durable(default: Any, key: str = "", *, shared: bool = False, rest: bool = False, rows: bool = False,
            outlives_end: bool = False, trim: Callable[[Any], object] = lambda value: value) -> Any:  # fmt: skip
    """A field that the next master gets too.

    key: its name in the status, if it differs
    shared: it is one element of the list of that name, behind those that are declared before it
    rest: its elements are the rest of that list
    rows: a mapping is written as a list, in its order
    outlives_end: a job that is started again after its end gets it too
    trim: returns the part of it that is written
    """
    return _field(default, Durability("durable", key, shared or rest, rest, rows, outlives_end, trim))


def transient(default: Any) -> Any:
    """A field that ends with this master: the next one finds the value by itself or does not need it."""
    return _field(default, Durability("transient"))


def inherited(default: Any, key: str = "") -> Any:
    """A field that is read like a durable one, while `status.persist` writes it from members and generations."""
    return _field(default, Durability("inherited", key))


def special(default: Any) -> Any:
    """A field that `status.persist` writes or reads in its own way."""
    return _field(default, Durability("special"))


def part(default: Any, key: str = "") -> Any:
    """A dataclass whose own fields declare their durability; with a key they are written under it."""
    return _field(default, Durability("part", key))


def _field(default: Any, how: Durability) -> Any:
    metadata = {"durability": how}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


# -- parts ----------------------------------------------------------------------------------------------------------
def written(of: Any, clock: Clock) -> dict[str, Any]:
    """What is written of a part for the next master."""
    found: dict[str, Any] = {}
    _write(of, found, clock)
    return found


def _write(of: Any, found: dict[str, Any], clock: Clock) -> None:
    for name, how, codec in _declared(of.__class__):
        held, key = getattr(of, name), how.key or name
        if how.kind == "part":
            _write(held, found.setdefault(key, {}) if how.key else found, clock)
        elif how.kind == "durable":
            value = codec.write(how.trim(held), clock)
            if how.is_shared:
                found.setdefault(key, []).extend(value if how.is_rest else [value])
            else:
                found[key] = value


def restore(of: Any, saved: Mapping[str, Any], clock: Clock, *, after_end: bool = False) -> None:
    """Takes over what was written; with `after_end` only what outlives the job's end."""
    _restore(of, {key: [*kept] if isinstance(kept, list) else kept for key, kept in saved.items()}, clock, after_end)


def _restore(of: Any, saved: dict[str, Any], clock: Clock, after_end: bool) -> None:
    for name, how, codec in _declared(of.__class__):
        held, key = getattr(of, name), how.key or name
        if how.kind == "part" and not how.key:
            _restore(held, saved, clock, after_end)
        elif key not in saved or (after_end and not how.outlives_end) or (how.is_shared and not saved[key]):
            continue
        elif how.kind == "part":
            restore(held, saved[key] or {}, clock)
        else:
            value = codec.read(saved[key].pop(0) if how.is_shared and not how.is_rest else saved[key], clock)
            setattr(of, name, deque(value, held.maxlen) if isinstance(held, deque) else value)


@cache
def _declared(kind: Any) -> tuple[tuple[str, Durability, Codec], ...]:
    hints = get_type_hints(kind, include_extras=True)
    found = ((each.name, each.metadata["durability"]) for each in fields(kind))
    return tuple((name, how, WHOLE if how.kind == "part" else _codec(hints[name], how.is_rows))
                 for name, how in found if how.kind in ("durable", "inherited", "part"))  # fmt: skip


# -- values ---------------------------------------------------------------------------------------------------------
class Codec(NamedTuple):
    write: Callable[[Any, Clock], Any] = lambda value, _clock: value
    read: Callable[[Any, Clock], Any] = lambda value, _clock: value
    width: int = 0
    """The number of elements in a record's list; 0 for any other value."""


WHOLE = Codec()


def write(kind: Any, value: object, clock: Clock) -> Any:
    return _codec(kind).write(value, clock)


def read(kind: Any, saved: object, clock: Clock) -> Any:
    return _codec(kind).read(saved, clock)


@cache
def _codec(kind: Any, is_rows: bool = False) -> Codec:
    if kind in AS_IT_IS:
        return WHOLE
    if kind in (Moment, Deadline):
        return _moment(kind)
    if isinstance(kind, NewType):
        return _codec(kind.__supertype__)
    if kind in (int, float, str, bool):
        return Codec(read=lambda value, _clock: kind(value))
    arguments, origin = get_args(kind), get_origin(kind)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind)
    if type(None) in arguments:
        return _optional(_codec(arguments[0]))
    if origin is dict:
        return _rows(*arguments) if is_rows else _mapping(*map(_codec, arguments))
    if origin is tuple and ... not in arguments:
        return _sequence(arguments, tuple, is_dataclass)
    return _collection(origin, _codec(arguments[0]))


def _moment(kind: object) -> Codec:
    def read(saved: float | None, clock: Clock) -> float:
        at = float("-inf") if saved is None else float(saved) - clock.offset
        return min(at, clock.now) if kind == Moment else at

    return Codec(lambda at, clock: None if at == float("-inf") else at + clock.offset, read)


def _optional(codec: Codec) -> Codec:
    return Codec(
        lambda value, clock: None if value is None else codec.write(value, clock),
        lambda saved, clock: None if saved is None else codec.read(saved, clock),
    )


def _collection(kind: Any, codec: Codec) -> Codec:
    in_order = sorted if kind is set else list
    return Codec(
        lambda held, clock: [codec.write(value, clock) for value in in_order(held)],
        lambda saved, clock: kind(codec.read(value, clock) for value in saved),
    )


def _mapping(keys: Codec, values: Codec) -> Codec:
    return Codec(
        lambda held, clock: {str(key): values.write(value, clock) for key, value in sorted(held.items())},
        lambda saved, clock: {keys.read(key, clock): values.read(value, clock) for key, value in saved.items()},
    )


def _rows(*kinds: Any) -> Codec:
    rows = _collection(list, _sequence(kinds, tuple, lambda _kind: True))
    return Codec(
        lambda held, clock: rows.write(held.items(), clock), lambda saved, clock: dict(rows.read(saved, clock))
    )


def _record(kind: Any) -> Codec:
    """The codec of a NamedTuple, or of a dataclass without its transient fields."""
    declared = {each.name: each.metadata.get("durability") for each in fields(kind)} if is_dataclass(kind) else {}
    ended = {name for name, how in declared.items() if how is not None and how.kind == "transient"}
    kinds = {name: hint for name, hint in get_type_hints(kind, include_extras=True).items() if name not in ended}
    row = _sequence(kinds.values(), lambda values: kind(**dict(zip(kinds, values, strict=False))), is_dataclass)
    return row._replace(write=lambda value, clock: row.write([getattr(value, name) for name in kinds], clock))


def _sequence(kinds: Iterable[Any], make: Callable[[list[Any]], Any], is_spread: Callable[[Any], bool]) -> Codec:
    """The codec of values of these kinds in one list, which has the elements of spread values themselves."""
    codecs = [_codec(kind) for kind in kinds]
    widths = [codec.width if is_spread(kind) else 0 for kind, codec in zip(kinds, codecs, strict=True)]

    def write(values: Iterable[Any], clock: Clock) -> list[Any]:
        row: list[Any] = []
        for value, codec, width in zip(values, codecs, widths, strict=True):
            encoded = codec.write(value, clock)
            row.extend(encoded if width else [encoded])
        return row

    def read(saved: Iterable[Any], clock: Clock) -> Any:
        left, found = list(saved), []
        for codec, width in zip(codecs, widths, strict=True):
            if left:
                found.append(codec.read(left[:width] if width else left[0], clock))
                del left[: width or 1]
        return make(found)

    return Codec(write, read, sum(width or 1 for width in widths))
