"""Converts states, events and actions to JSON and back, by the declared types of their fields.

A dataclass is a map of its fields, without those that have their default; a named tuple, a tuple, a set and a list are
arrays; a mapping is an array of pairs. A value of one of several types has its type's name under `@`. An object that
changes and has several owners, as the budget of all tasks of a PS job, has a number under `#`, and is that number under
`&` everywhere else. Nothing is unpickled: a reader makes only the declared types (`types.known`), and a value that does
not fit raises `reader.Wrong` with its path.

The encoder of a text is chosen by `fields.kind_of`, so that no text leaves unless a line there allows it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NewType, get_args, get_origin, get_type_hints

from outrider.master.recording import fields, types
from outrider.master.recording.scrubbing import Scrubber
from outrider.wire import reader

TYPE, NUMBER, REFERENCE, VALUE, LONGEST = "@", "#", "&", "v", "most"
INFINITIES = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
PLAIN = (bool, int, float)
CHANGING = (list, dict, set, deque)

Encode = Callable[[Any, "Writing"], Any]
Decode = Callable[[Any, "Reading"], Any]


class Writing:
    """One document that is written: its scrubber, and the objects in it that have several owners."""

    def __init__(self, scrubber: Scrubber, shared: frozenset[int] = frozenset()) -> None:
        self.scrubber, self.shared = scrubber, shared
        self._numbers: dict[int, int] = {}

    def number_of(self, value: object) -> tuple[int, bool]:
        """The number of a shared object, and whether it was written before."""
        is_known = id(value) in self._numbers
        return self._numbers.setdefault(id(value), len(self._numbers)), is_known


class Reading:
    """One document that is read: the objects in it that have several owners."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}


def encoded(kind: Any, value: object, scrubber: Scrubber) -> Any:
    """A value of this type as JSON. Raises TypeError for a value that its declared type does not have."""
    shared = _with_several_owners(value) if _changes(value) else frozenset()
    return _codecs.of(kind, fields.TEXT)[0](value, Writing(scrubber, shared))


def decoded(kind: Any, value: Any) -> Any:
    """The value in JSON. Raises reader.Wrong."""
    return _codecs.of(kind, fields.TEXT)[1](value, Reading())


# -- objects with several owners --------------------------------------------------------------------------------------
def _changes(value: object) -> bool:
    parameters = getattr(value, "__dataclass_params__", None)
    return isinstance(value, CHANGING) or (parameters is not None and not parameters.frozen)


def _with_several_owners(root: object) -> frozenset[int]:
    seen, twice, open_ = set[int](), set[int](), [root]
    while open_:
        value = open_.pop()
        if _changes(value):
            if id(value) in seen:
                twice.add(id(value))
                continue
            seen.add(id(value))
        if dataclasses.is_dataclass(value):
            open_ += [getattr(value, each.name) for each in dataclasses.fields(value)]
        elif isinstance(value, Mapping):
            open_ += [*value.keys(), *value.values()]
        elif isinstance(value, tuple | list | set | frozenset | deque):
            open_ += value
    return frozenset(twice)


# -- codecs by type ---------------------------------------------------------------------------------------------------
class _Codecs:
    """The pair of functions for each type and kind of text, made once. A type may contain itself."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Encode, Decode]] = {}

    def of(self, hint: Any, text: str) -> tuple[Encode, Decode]:
        if isinstance(hint, NewType) and hint.__supertype__ is str:
            return _text(fields.NOTED)
        hint = reader.plain(hint)
        key = (hint, text)
        if key not in self._made:
            self._made[key] = (  # for a type within itself, until the line below has made the real one
                lambda value, to: self._made[key][0](value, to),
                lambda value, by: self._made[key][1](value, by),
            )
            self._made[key] = self._make(hint, text)
        return self._made[key]

    def _make(self, hint: Any, text: str) -> tuple[Encode, Decode]:
        if hint is str:
            return _text(text)
        if hint in (*PLAIN, type(None)):
            return _plain()
        if hint in (Any, object):
            return _anything(text)
        if reader.is_union(hint):
            return self._union(get_args(hint), text)
        if dataclasses.is_dataclass(hint):
            return _dataclass(hint)
        if types.is_named_tuple(hint):
            return _named_tuple(hint)
        return self._container(get_origin(hint) or hint, get_args(hint), text)

    def _union(self, options: tuple[Any, ...], text: str) -> tuple[Encode, Decode]:
        inner = [each for each in options if each is not type(None)]
        may_be_none = len(inner) < len(options)
        if len(inner) == 1:
            encode, decode = self.of(inner[0], text)
        else:
            encode, decode = _tagged({types.name_of(each): each for each in inner})
        if not may_be_none:
            return encode, decode
        return (
            lambda value, to: None if value is None else encode(value, to),
            lambda value, by: None if value is None else decode(value, by),
        )

    def _container(self, origin: Any, arguments: tuple[Any, ...], text: str) -> tuple[Encode, Decode]:
        if origin is Counter:
            arguments = (*arguments, int)
        inner = [self.of(each, text) for each in arguments if each is not Ellipsis]
        if origin is tuple and ... not in arguments:
            return _row([each[0] for each in inner], [each[1] for each in inner], tuple)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return _mapping(dict if origin is Mapping or not issubclass(origin, dict) else origin, *inner)
        if origin in (tuple, list, set, frozenset, deque):
            return _items(origin, *inner[0])
        raise TypeError(f"{origin}: a recording has no form for this type")


_codecs = _Codecs()


def _text(kind: str) -> tuple[Encode, Decode]:
    def encode(value: Any, to: Writing) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"{type(value).__name__} instead of a text")
        return to.scrubber.of_kind(kind, value)

    return encode, lambda value, _by: _checked(value, str)


def _plain() -> tuple[Encode, Decode]:
    """Numbers, flags and None: whichever it is, it holds no text."""

    def encode(value: Any, _to: Writing) -> Any:
        if type(value) is float and not math.isfinite(value):
            return str(value)
        if value is not None and type(value) not in PLAIN:
            raise TypeError(f"{type(value).__name__} instead of a number")
        return value

    def decode(value: Any, _by: Reading) -> Any:
        if type(value) is str and value in INFINITIES:
            return INFINITIES[value]
        if type(value) is int and not -(1 << 63) <= value < 1 << 64:
            raise reader.Wrong(value, "an integer of 64 bits")
        return value if value is None else _checked(value, *PLAIN)

    return encode, decode


def _checked(value: Any, *kinds: type) -> Any:
    if type(value) in kinds:
        return value
    raise reader.Wrong(value, " or ".join(each.__name__ for each in kinds))


def _shared(encode: Encode, make: Callable[[], Any] | None, decode: Callable[[Any, Any, Reading], Any]) -> Any:
    """Numbers what has several owners. `make` returns an empty object, which `decode` fills: it may contain itself."""

    def encode_shared(value: Any, to: Writing) -> Any:
        if id(value) not in to.shared:
            return encode(value, to)
        number, is_known = to.number_of(value)
        return {REFERENCE: number} if is_known else {NUMBER: number, VALUE: encode(value, to)}

    def decode_shared(value: Any, by: Reading) -> Any:
        if type(value) is dict and REFERENCE in value:
            if value[REFERENCE] not in by.objects:
                raise reader.Wrong(value[REFERENCE], "the number of an object before it")
            return by.objects[value[REFERENCE]]
        if type(value) is dict and NUMBER in value and make is not None:
            made = by.objects[_checked(value[NUMBER], int)] = make()
            return decode(made, value.get(VALUE), by)
        return decode(None if make is None else make(), value, by)

    return encode_shared, decode_shared


def _dataclass(cls: Any) -> tuple[Encode, Decode]:
    name, hints = types.name_of(cls), get_type_hints(cls, include_extras=True)
    plan = [(each.name, *_codecs.of(hints[each.name], fields.kind_of(name, each.name)), _default(each),
             fields.kind_of(name, each.name) == fields.LEFT_OUT, _empty(hints[each.name]))
            for each in dataclasses.fields(cls)]  # fmt: skip

    def encode(value: Any, to: Writing) -> Any:
        if type(value) is not cls:
            raise TypeError(f"{type(value).__name__} instead of {cls.__name__}")
        body = {}
        for field, write, _read, default, is_left_out, _none in plan:
            held = getattr(value, field)
            if is_left_out or (default is not dataclasses.MISSING and type(held) is type(default) and held == default):
                continue
            try:
                body[field] = write(held, to)
            except TypeError as error:
                raise TypeError(f"{name}.{field}: {error}") from None
        return body

    def fill(made: Any, value: Any, by: Reading) -> Any:
        known = {each[0] for each in plan}
        if type(value) is not dict or not value.keys() <= known:
            unknown = sorted(map(str, value.keys() - known)) if type(value) is dict else value
            raise reader.Wrong(", ".join(unknown) if type(value) is dict else value, f"fields of {name}")
        for field, _write, read, default, is_left_out, none in plan:
            if field in value:
                try:
                    held = read(value[field], by)
                except reader.Wrong as wrong:
                    wrong.path = f".{field}{wrong.path}"
                    raise
            elif default is dataclasses.MISSING and not is_left_out:
                raise reader.Wrong(dataclasses.MISSING, f"a field of {name}")
            else:
                held = none() if default is dataclasses.MISSING else default
            object.__setattr__(made, field, held)
        return made

    found: tuple[Encode, Decode] = _shared(encode, lambda: cls.__new__(cls), fill)
    return found


def _default(field: dataclasses.Field[Any]) -> Any:
    """A default that never changes; MISSING for any other."""
    is_plain = isinstance(field.default, str | int | float | bool | tuple | None) or types.is_type(type(field.default))
    return field.default if is_plain else dataclasses.MISSING


def _empty(hint: Any) -> Callable[[], Any]:
    """Makes the value of a field that is left out."""
    kind = reader.plain(hint)
    made: Callable[[], Any] = get_origin(kind) or kind
    return made


def _named_tuple(cls: Any) -> tuple[Encode, Decode]:
    name, hints = types.name_of(cls), get_type_hints(cls, include_extras=True)
    codecs = [_codecs.of(hint, fields.kind_of(name, field)) for field, hint in hints.items()]
    return _row([each[0] for each in codecs], [each[1] for each in codecs], lambda values: cls(*values))


def _row(encoders: list[Encode], decoders: list[Decode], make: Callable[[list[Any]], Any]) -> tuple[Encode, Decode]:
    def encode(value: Any, to: Writing) -> Any:
        if not isinstance(value, tuple) or len(value) != len(encoders):
            raise TypeError(f"{type(value).__name__} instead of {len(encoders)} values")
        return [write(each, to) for write, each in zip(encoders, value, strict=True)]

    def decode(value: Any, by: Reading) -> Any:
        if type(value) is not list or len(value) != len(decoders):
            raise reader.Wrong(value, f"an array of {len(decoders)}")
        return make([read(each, by) for read, each in zip(decoders, value, strict=True)])

    return encode, decode


def _mapping(origin: Any, key: tuple[Encode, Decode], item: tuple[Encode, Decode]) -> tuple[Encode, Decode]:
    def encode(value: Any, to: Writing) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"{type(value).__name__} instead of a mapping")
        return [[key[0](name, to), item[0](each, to)] for name, each in value.items()]

    def fill(made: Any, value: Any, by: Reading) -> Any:
        for each in _checked(value, list):
            if type(each) is not list or len(each) != 2:
                raise reader.Wrong(each, "a pair")
            name = key[1](each[0], by)
            try:
                made[name] = item[1](each[1], by)
            except reader.Wrong as wrong:
                wrong.path = f"[{name}]{wrong.path}"
                raise
        return made

    found: tuple[Encode, Decode] = _shared(encode, origin, fill)
    return found


def _items(origin: Any, write: Encode, read: Decode) -> tuple[Encode, Decode]:
    def encode(value: Any, to: Writing) -> Any:
        if not isinstance(value, origin):
            raise TypeError(f"{type(value).__name__} instead of {origin.__name__}")
        if origin in (set, frozenset):
            return sorted((write(each, to) for each in value), key=str)
        items = [write(each, to) for each in value]
        return [value.maxlen, *items] if origin is deque else items

    def fill(made: Any, value: Any, by: Reading) -> Any:
        found = _checked(value, list)
        if origin is deque:
            most, *found = found or [None]
            made = deque(maxlen=None if most is None else _checked(most, int))
        values = [read(each, by) for each in found]
        if made is None:
            return origin(values)
        made.update(values) if origin is set else made.extend(values)
        return made

    found: tuple[Encode, Decode] = _shared(encode, origin if origin in (list, set) else None, fill)
    return found


def _tagged(options: Mapping[str, Any]) -> tuple[Encode, Decode]:
    """One of several dataclasses."""

    def encode(value: Any, to: Writing) -> Any:
        name = types.name_of(type(value))
        if name not in options:
            raise TypeError(f"{name} instead of one of {', '.join(options)}")
        return {TYPE: name, **_codecs.of(options[name], fields.TEXT)[0](value, to)}

    def decode(value: Any, by: Reading) -> Any:
        if type(value) is not dict or type(value.get(TYPE)) is not str or value[TYPE] not in options:
            raise reader.Wrong(value.get(TYPE) if type(value) is dict else value, "the name of a known type")
        name = value[TYPE]
        try:
            return _codecs.of(options[name], fields.TEXT)[1]({k: v for k, v in value.items() if k != TYPE}, by)
        except reader.Wrong as wrong:
            wrong.path = f"{name}{wrong.path}"
            raise

    return encode, decode


def _anything(text: str) -> tuple[Encode, Decode]:
    """A document without declared fields, as an earlier master's status; also a dataclass of a known type."""

    def encode(value: Any, to: Writing) -> Any:
        if isinstance(value, str):
            return to.scrubber.untyped(value)
        if value is None or isinstance(value, bool | int | float):
            return value if not isinstance(value, float) or math.isfinite(value) else {VALUE: str(value)}
        if isinstance(value, Mapping):
            return {VALUE: [[encode(key, to), encode(each, to)] for key, each in value.items()]}
        if dataclasses.is_dataclass(value) and types.known().get(types.name_of(type(value))) is type(value):
            return _tagged(types.known())[0](value, to)
        if isinstance(value, tuple):
            return {TYPE: "tuple", VALUE: [encode(each, to) for each in value]}
        if isinstance(value, list):
            return [encode(each, to) for each in value]
        raise TypeError(f"{type(value).__name__} has no form in a recording")

    def decode(value: Any, by: Reading) -> Any:
        if type(value) is list:
            return [decode(each, by) for each in value]
        if type(value) is not dict:
            return _checked(value, str, int, float, bool, type(None))
        if TYPE not in value:
            return _of_map(value.get(VALUE), by)
        if value[TYPE] == "tuple":
            return tuple(decode(each, by) for each in _checked(value.get(VALUE), list))
        return _tagged(types.known())[1](value, by)

    def _of_map(found: Any, by: Reading) -> Any:
        if type(found) is str and found in INFINITIES:
            return INFINITIES[found]
        if type(found) is not list or not all(type(each) is list and len(each) == 2 for each in found):
            raise reader.Wrong(found, "an array of pairs")
        return {decode(key, by): decode(each, by) for key, each in found}

    return encode, decode
