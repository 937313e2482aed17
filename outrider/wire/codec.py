"""Converts messages to bytes and back; the only module that uses msgpack.

A message is one msgpack map: `message` has its name, every other key is a field. Parts are maps too, so that they may
get further fields; only a `Generation` is written as the pair `[term, number]`. Nothing is ever unpickled. All input is
untrusted until it is decoded here: a value of the wrong type, a number that is not finite, an unknown message, an id
that is too long, or more than `MAX_BYTES` raises `BadMessage`, with what was found and what it must be. Prose that is
too long is cut (`text_limits.Longest`). Unknown fields are ignored and missing ones get their default: that is how
versions are added.

Readers and writers are built once, when this module is loaded. A Report costs about ten microseconds each way, because
a master of ten thousand members reads ten thousand of them per second.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]

from outrider.wire import reader
from outrider.wire.ids import Generation
from outrider.wire.messages.directions import FromMaster, FromSidecar, Message

MAX_BYTES: Final = 1 << 20
"""The most bytes of a message. The longest expected one, of eight ranks that fail at once with 8 KiB of traceback each,
has a tenth of it."""
MAX_ITEMS: Final = 4096
"""The most items of an array or map. The unpacker allocates the number in the header, so a false one must not cost
gigabytes."""
NAME: Final = "message"

_Write = Callable[[Any], Any]


class BadMessage(Exception):
    """Bytes that are not a message, or a message too large to send; the text has the value and what it must be."""


def encode(message: Message) -> bytes:
    """The bytes of a message. Raises BadMessage if they would be more than a reader accepts."""
    found = _WRITERS.get(type(message))
    if found is None:
        raise BadMessage(f"{type(message).__name__}: must be a message")
    name, write = found
    body: dict[str, Any] = {NAME: name}
    body.update(write(message))
    data = _pack(body)
    if len(data) > MAX_BYTES:
        raise BadMessage(f"{name} has {len(data)} bytes, but at most {MAX_BYTES} may be sent")
    return data


def name_at(beginning: bytes) -> str:
    """The name of the message that begins with these bytes; empty if it cannot be read from them."""
    at = 1 if beginning[:1] < b"\x90" else 3  # a map of up to 15 fields has its length in its first byte
    key = b"\xa7" + NAME.encode()
    if not beginning.startswith(key, at) or len(beginning) <= at + len(key):
        return ""
    begin = at + len(key) + 1
    return beginning[begin : begin + (beginning[begin - 1] & 31)].decode("ascii", "replace")


def decode_from_sidecar(data: bytes) -> FromSidecar:
    """The message of a sidecar. Raises only BadMessage, whatever the bytes are."""
    found: FromSidecar = _decode(data, _FROM_SIDECAR, "from a sidecar")
    return found


def decode_from_master(data: bytes) -> FromMaster:
    """The message of a master. Raises only BadMessage, whatever the bytes are."""
    found: FromMaster = _decode(data, _FROM_MASTER, "from a master")
    return found


def _decode(data: bytes, known: Mapping[str, reader.Read], whence: str) -> Any:
    body = _unpack(data)
    if type(body) is not dict:
        raise BadMessage(f"{reader.quoted(body)}: must be a message {whence}, which is a map")
    name = body.get(NAME)
    read = known.get(name) if type(name) is str else None
    if read is None:
        raise BadMessage(f"{reader.quoted(name)}: must be a message {whence}, one of {', '.join(known)}")
    try:
        return read(body)
    except reader.Wrong as wrong:
        raise BadMessage(f"{name}.{wrong}") from None


# -- msgpack ----------------------------------------------------------------------------------------------------------
_packer = msgpack.Packer()
_packer_of_surrogates = msgpack.Packer(unicode_errors="surrogatepass")


def _pack(body: dict[str, Any]) -> bytes:
    """The packed map. File names and texts of exceptions may have lone surrogates, which need the slower packer."""
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
        raise BadMessage(f"{len(data)} bytes are too many: a message has at most {MAX_BYTES}")
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
        raise BadMessage(
            f"{len(data)} bytes: must be a complete msgpack map: {detail[: reader.LONGEST_QUOTE]}"
        ) from None


# -- writers ----------------------------------------------------------------------------------------------------------
def _writer(hint: Any) -> _Write | None:
    """The function that converts values of this type for msgpack; None if they need no conversion."""
    hint = reader.plain(hint)
    if hint is Generation:
        return lambda value: (value.term, value.number)
    if is_dataclass(hint):
        return _writer_of_part(hint)
    if get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        return _writer_of_row(get_args(hint)[0])
    if reader.is_union(hint):
        (inner,) = (_writer(option) for option in get_args(hint) if option is not types.NoneType)
        return None if inner is None else lambda value: None if value is None else inner(value)
    return None


def _writer_of_row(item: Any) -> _Write:
    write = _writer(item)

    def write_row(value: Any) -> Any:
        if len(value) > MAX_ITEMS:
            raise BadMessage(f"an array of {len(value)} items is too long: at most {MAX_ITEMS} may be sent")
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


_FORMAT: Final = reader.Format(
    {
        int: reader.integer,
        float: reader.finite,
        bool: reader.flag,
        Generation: reader.generation(tuple, MAX_ITEMS, (1 << 64) - 1),
    },
    lambda longest: reader.text(longest.characters, "…" if longest.prose else None),
    tuple,
    may_grow=True,
)
_FROM_SIDECAR: Final = {cls.__name__: _FORMAT.reader(cls) for cls in get_args(FromSidecar)}
_FROM_MASTER: Final = {cls.__name__: _FORMAT.reader(cls) for cls in get_args(FromMaster)}
_WRITERS: Final = {cls: (cls.__name__, _writer_of_part(cls)) for cls in get_args(Message)}
