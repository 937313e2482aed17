"""Messages to bytes and back: the one place that knows msgpack.

A message is one msgpack map: `message` holds its name, every other key is a field. Parts are maps as well, so that they
may grow by a field; only a `Generation` is written as the pair `[term, number]`. Nothing is ever unpickled, and what
arrives is data of strangers until it has passed here: a value of the wrong type, a number that is not finite, a message
that nobody knows, an id that is too long, or more than `MAX_BYTES` of anything is a `BadMessage`, which says what was
found and what may be there; prose that is too long is cut (`text_limits.Longest`). What a reader does not know it
ignores, and what is missing takes its default: that is how versions are added.

The work for a class is done once, when this module is loaded. A Report costs about ten microseconds each way, because a
master that serves ten thousand members reads ten thousand of them a second.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from operator import attrgetter
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]

from outrider.wire.ids import Generation
from outrider.wire.messages.directions import FromMaster, FromSidecar, Message
from outrider.wire.messages.text_limits import ID, PROSE, Longest

MAX_BYTES: Final = 1 << 20
"""No message is longer. The longest that is meant, eight ranks failing at once with 8 KiB of traceback each, has a
tenth of it."""
MAX_ITEMS: Final = 4096
"""In one array or map. The unpacker reserves room for what a header claims, so a small lie must not cost gigabytes."""
NAME: Final = "message"

_Read = Callable[[Any], Any]
_Write = Callable[[Any], Any]
_LONGEST_QUOTE = 60


class BadMessage(Exception):
    """Bytes that are no message, or a message too large to be sent. Its text names what was found and what may be."""


def encode(message: Message) -> bytes:
    """The bytes of a message. Raises BadMessage where they would be more than a reader takes."""
    found = _WRITERS.get(type(message))
    if found is None:
        raise BadMessage(f"{type(message).__name__} is no message")
    name, write = found
    body: dict[str, Any] = {NAME: name}
    body.update(write(message))
    data = _pack(body)
    if len(data) > MAX_BYTES:
        raise BadMessage(f"{name} has {len(data)} bytes, at most {MAX_BYTES} may be sent")
    return data


def name_at(beginning: bytes) -> str:
    """The name of the message whose first bytes these are, without reading the rest; empty where it is not seen."""
    at = 1 if beginning[:1] < b"\x90" else 3  # a map of up to 15 fields has its length in its first byte
    key = b"\xa7" + NAME.encode()
    if not beginning.startswith(key, at) or len(beginning) <= at + len(key):
        return ""
    begin = at + len(key) + 1
    return beginning[begin : begin + (beginning[begin - 1] & 31)].decode("ascii", "replace")


def decode_from_sidecar(data: bytes) -> FromSidecar:
    """What a sidecar says. Raises BadMessage and nothing else, whatever the bytes are."""
    found: FromSidecar = _decode(data, _FROM_SIDECAR, "from a sidecar")
    return found


def decode_from_master(data: bytes) -> FromMaster:
    """What a master says. Raises BadMessage and nothing else, whatever the bytes are."""
    found: FromMaster = _decode(data, _FROM_MASTER, "from a master")
    return found


def _decode(data: bytes, known: Mapping[str, _Read], whence: str) -> Any:
    body = _unpack(data)
    if type(body) is not dict:
        raise BadMessage(f"{_quoted(body)} is no message {whence}: a message is a map")
    name = body.get(NAME)
    read = known.get(name) if type(name) is str else None
    if read is None:
        raise BadMessage(f"{_quoted(name)} is no message {whence}: there are {', '.join(known)}")
    try:
        return read(body)
    except _Wrong as wrong:
        raise BadMessage(f"{name}{wrong}") from None


# -- msgpack ----------------------------------------------------------------------------------------------------------
_packer = msgpack.Packer()
_packer_of_surrogates = msgpack.Packer(unicode_errors="surrogatepass")


def _pack(body: dict[str, Any]) -> bytes:
    """A file name or an exception's text may hold lone surrogates; they cross as such, by the slower packer."""
    try:
        packed = _packer.pack(body)
    except UnicodeEncodeError:
        _packer.reset()
        packed = _packer_of_surrogates.pack(body)
    except (ValueError, OverflowError, TypeError) as error:
        _packer.reset()
        raise BadMessage(f"{body[NAME]} cannot be written: {error}") from error
    assert isinstance(packed, bytes)
    return packed


def _unpack(data: bytes) -> Any:
    if len(data) > MAX_BYTES:
        raise BadMessage(f"{len(data)} bytes are too many, a message has at most {MAX_BYTES}")
    try:
        return msgpack.unpackb(
            data,
            use_list=False,
            unicode_errors="surrogatepass",
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
        )
    except (msgpack.UnpackException, ValueError, TypeError, OverflowError) as error:
        detail = str(error) or type(error).__name__
        raise BadMessage(f"{len(data)} bytes that are no whole msgpack map: {detail[:_LONGEST_QUOTE]}") from None


def _quoted(value: object) -> str:
    if isinstance(value, tuple | dict):
        return "a map" if isinstance(value, dict) else "an array"
    text = repr(value) if isinstance(value, str | bytes | int | float | None) else type(value).__name__
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


# -- readers: what one type takes --------------------------------------------------------------------------------------
class _Wrong(Exception):
    """A value that its field cannot take; `path` grows on the way out of nested parts."""

    def __init__(self, value: object, wanted: str) -> None:
        super().__init__()
        self.path = ""
        self.problem = f"is {_quoted(value)}, it may be {wanted}"

    def __str__(self) -> str:
        return f"{self.path} {self.problem}"


class _Missing(_Wrong):
    """A field that has no default and was not sent."""

    def __init__(self, wanted: str) -> None:
        super().__init__(None, wanted)
        self.problem = f"is missing, it may be {wanted}"


def _read_int(value: Any) -> Any:
    if type(value) is int and -(1 << 63) <= value < 1 << 63:
        return value
    raise _Wrong(value, "an integer of 64 bits")


def _read_float(value: Any) -> Any:
    if type(value) is float and value - value == 0.0:  # neither an infinity nor no number at all
        return value
    if type(value) is int:
        return float(value)
    raise _Wrong(value, "a finite number")


def _reader_of_text(longest: Longest) -> _Read:
    most, is_prose = longest.characters, longest.prose
    wanted = f"text of at most {most} characters"

    def read_text(value: Any) -> Any:
        if type(value) is str:
            if len(value) <= most:
                return value
            if is_prose:
                return f"{value[: most - 1]}…"
            raise _Wrong(f"{len(value)} characters of text", wanted)
        raise _Wrong(value, "text")

    return read_text


def _read_bool(value: Any) -> Any:
    if value is True or value is False:
        return value
    raise _Wrong(value, "true or false")


def _read_generation(value: Any) -> Any:
    if type(value) is tuple and len(value) >= 2:
        term, number = value[0], value[1]
        if type(term) is int and type(number) is int and term >= 0 and number >= 0:
            return Generation(term, number)
    raise _Wrong(value, "a generation: [term, number]")


_SCALARS: Final[Mapping[Any, _Read]] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    Generation: _read_generation,
}
_WANTED: Final[Mapping[Any, str]] = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    Generation: "a generation: [term, number]",
}


def _reader(hint: Any) -> _Read:
    given, hint = hint, _plain(hint)
    if hint is str:
        return _reader_of_text(_longest(given))
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint):
        return _reader_of_part(hint)
    if get_origin(hint) is tuple:
        return _reader_of_tuple(get_args(hint))
    if _is_union(hint):
        return _reader_of_optional(get_args(hint))
    raise TypeError(f"no message may have a field of type {hint}")


def _reader_of_optional(options: tuple[Any, ...]) -> _Read:
    (inner,) = (_reader(option) for option in options if option is not types.NoneType)
    return lambda value: None if value is None else inner(value)


def _reader_of_tuple(items: tuple[Any, ...]) -> _Read:
    return _reader_of_row(items[0]) if items[-1] is Ellipsis else _reader_of_fixed(items)


def _reader_of_row(item: Any) -> _Read:
    read = _reader(item)

    def read_row(value: Any) -> Any:
        if type(value) is not tuple:
            raise _Wrong(value, "an array")
        at = 0
        try:
            found = []
            for at, one in enumerate(value):  # noqa: B007 (the except below names it)
                found.append(read(one))
            return tuple(found)
        except _Wrong as wrong:
            wrong.path = f"[{at}]{wrong.path}"
            raise

    return read_row


def _reader_of_fixed(items: tuple[Any, ...]) -> _Read:
    readers = tuple(_reader(item) for item in items)

    def read_fixed(value: Any) -> Any:
        if type(value) is not tuple or len(value) < len(readers):
            raise _Wrong(value, f"an array of {len(readers)}")
        return tuple(read(one) for read, one in zip(readers, value, strict=False))

    return read_fixed


def _reader_of_part(cls: Any) -> _Read:
    """Reads a map into a frozen dataclass: a message, or a part of one."""
    hints = get_type_hints(cls, include_extras=True)
    plan = tuple((field.name, _reader(hints[field.name]), field.default) for field in fields(cls))

    def read_part(value: Any) -> Any:
        if type(value) is not dict:
            raise _Wrong(value, "a map")
        get, name, values = value.get, "", []
        try:
            for name, read, default in plan:
                one = get(name, MISSING)
                if one is not MISSING:
                    values.append(read(one))
                elif default is not MISSING:
                    values.append(default)
                else:
                    raise _Missing(_wanted(hints[name]))
        except _Wrong as wrong:
            wrong.path = f".{name}{wrong.path}"
            raise
        return cls(*values)

    return read_part


def _wanted(hint: Any) -> str:
    return _WANTED.get(_plain(hint), "an array or a map, see outrider/wire/messages/")


# -- writers ----------------------------------------------------------------------------------------------------------
def _writer(hint: Any) -> _Write | None:
    """What turns a value of this type into what msgpack knows; None where it is that already."""
    hint = _plain(hint)
    if hint is Generation:
        return lambda value: (value.term, value.number)
    if is_dataclass(hint):
        return _writer_of_part(hint)
    if get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        return _writer_of_row(get_args(hint)[0])
    if _is_union(hint):
        (inner,) = (_writer(option) for option in get_args(hint) if option is not types.NoneType)
        return None if inner is None else lambda value: None if value is None else inner(value)
    return None


def _writer_of_row(item: Any) -> _Write:
    write = _writer(item)

    def write_row(value: Any) -> Any:
        if len(value) > MAX_ITEMS:
            raise BadMessage(f"an array of {len(value)} items is too long, at most {MAX_ITEMS} may be sent")
        return value if write is None else tuple(write(one) for one in value)

    return write_row


def _writer_of_part(cls: Any) -> _Write:
    hints = get_type_hints(cls, include_extras=True)
    names = tuple(field.name for field in fields(cls))
    get = attrgetter(*names)
    single = len(names) == 1
    special = tuple((name, write) for name in names if (write := _writer(hints[name])) is not None)

    def write_part(value: Any) -> dict[str, Any]:
        found = get(value)
        body = dict(zip(names, (found,) if single else found, strict=True))
        for name, write in special:
            body[name] = write(body[name])
        return body

    return write_part


# -- types ------------------------------------------------------------------------------------------------------------
def _plain(hint: Any) -> Any:
    """A NewType is what it was made from, and what is annotated is what it was."""
    while hasattr(hint, "__supertype__") or get_origin(hint) is Annotated:
        hint = hint.__supertype__ if hasattr(hint, "__supertype__") else get_args(hint)[0]
    return hint


def _longest(hint: Any) -> Longest:
    """Of a text: what is annotated, else that of any id, or of any prose."""
    if get_origin(hint) is Annotated:
        return next(each for each in get_args(hint)[1:] if isinstance(each, Longest))
    return ID if hasattr(hint, "__supertype__") else PROSE


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


_FROM_SIDECAR: Final = {cls.__name__: _reader(cls) for cls in get_args(FromSidecar)}
_FROM_MASTER: Final = {cls.__name__: _reader(cls) for cls in get_args(FromMaster)}
_WRITERS: Final = {cls: (cls.__name__, _writer_of_part(cls)) for cls in get_args(Message)}
