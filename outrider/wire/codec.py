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
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]

from outrider.wire import reader
from outrider.wire.ids import Generation
from outrider.wire.messages.directions import FromMaster, FromSidecar, Message

MAX_BYTES: Final = 1 << 20
"""No message is longer. The longest that is meant, eight ranks failing at once with 8 KiB of traceback each, has a
tenth of it."""
MAX_ITEMS: Final = 4096
"""In one array or map. The unpacker reserves room for what a header claims, so a small lie must not cost gigabytes."""
NAME: Final = "message"

_Write = Callable[[Any], Any]


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


def _decode(data: bytes, known: Mapping[str, reader.Read], whence: str) -> Any:
    body = _unpack(data)
    if type(body) is not dict:
        raise BadMessage(f"{reader.quoted(body)} is no message {whence}: a message is a map")
    name = body.get(NAME)
    read = known.get(name) if type(name) is str else None
    if read is None:
        raise BadMessage(f"{reader.quoted(name)} is no message {whence}: there are {', '.join(known)}")
    try:
        return read(body)
    except reader.Wrong as wrong:
        raise BadMessage(f"{name}.{wrong}") from None


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
        raise BadMessage(f"{len(data)} bytes that are no whole msgpack map: {detail[: reader.LONGEST_QUOTE]}") from None


# -- writers ----------------------------------------------------------------------------------------------------------
def _writer(hint: Any) -> _Write | None:
    """What turns a value of this type into what msgpack knows; None where it is that already."""
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
