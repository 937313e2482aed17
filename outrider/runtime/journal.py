"""Records the events, actions and changes of state of a core, and prints them in one text format.

The journal of a running service, the golden transcripts of the tests, a failing simulation and the docs use the same
format, so that one who can read one can read all, and lines can be copied between them:

        12.345 > WorkerExited generation=1.2 exit=WorkerExit(local_rank=0 pid=9 code=1)
        12.345 = running -> failed
        12.345 < Send message=Exited(…) generation=1.2 reason='worker process 0 exited with 1'

`>` is an event, `<` an action, `=` a change of state. Fields with their default are left out.

A journal has a limit of bytes and can be replayed: it begins with a copy of the state and has every event since. When
it is full, it starts a new segment with the current state, and drops all segments but the last one before it. Entries
are stored packed and become text only on request, because a master reads 10,000 reports per second.
"""

from __future__ import annotations

import dataclasses
import io
import logging
import operator
import os
import pickle
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

EACH = 2 << 20
"""The most bytes of one journal; a state larger than half of that is still stored."""
TOGETHER = 64 << 20
"""The most bytes of all journals of one shelf."""
LONGEST_FILE = 32 << 20
TRANSITIONS_KEPT = 500
PACKED_AT_ONCE = 32
"""The number of entries that are packed together; newer entries wait unpacked."""
SECRET = frozenset({"token", "memory_key", "ticket"})
"""Fields whose content is never printed, because journals are sent to other people."""

log = logging.getLogger("journal")

Entry = tuple[float, str, Any]
"""The time of an entry, its mark (`>`, `<` or `=`), and its value."""


class Shelf:
    """Journals that share a limit of bytes: the more journals, the shorter each one is."""

    def __init__(self, each: int = EACH, together: int = TOGETHER) -> None:
        self._each, self._together = each, together
        self._journals: weakref.WeakSet[Journal] = weakref.WeakSet()

    def add(self, journal: Journal) -> None:
        self._journals.add(journal)

    @property
    def share(self) -> int:
        return min(self._each, self._together // max(len(self._journals), 1))


@dataclasses.dataclass(slots=True)
class _Segment:
    """A part of a journal: the packed state at its beginning, and the packs of all entries since."""

    since: float
    state: bytes
    packs: list[bytes] = dataclasses.field(default_factory=list)
    size: int = 0
    """The bytes of all packs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """What a journal holds at one moment, still packed; later events do not change it."""

    since: float
    _state: bytes
    _packs: tuple[bytes, ...]
    _newest: tuple[Entry, ...]

    def state(self) -> Any:
        """A new copy of the state before the first event."""
        return _unpacked(self._state)

    def parts(self) -> Iterator[list[Entry]]:
        """All entries in order, a few at a time."""
        for packed in self._packs:
            yield _unpacked(packed)
        yield list(self._newest)


class Journal:
    """The last events and actions, and the last changes of state, which `write` saves to `path`."""

    def __init__(self, path: Path | None = None, shelf: Shelf | None = None, longest_file: int = LONGEST_FILE) -> None:
        self._path, self._longest_file = path, longest_file
        self._shelf = shelf or Shelf()
        self._shelf.add(self)
        self._state: Callable[[], object] = lambda: None
        self._segments: list[_Segment] = []
        self._newest: list[Entry] = []
        self._transitions: deque[Entry] = deque(maxlen=TRANSITIONS_KEPT)

    def follow(self, state: Callable[[], object]) -> None:
        """Set the function that returns the state, which each segment begins with."""
        self._state = state

    def event(self, now: float, event: object) -> None:
        """Record an event, before the core handles it."""
        if len(self._newest) >= PACKED_AT_ONCE and self._segments:
            self._pack()
        if not self._segments or self._is_full(self._segments[-1]):
            self._begin(now)
        self._newest.append((now, ">", event))

    def action(self, now: float, action: object) -> None:
        self._newest.append((now, "<", action))

    def transition(self, now: float, before: str, after: str) -> None:
        entry = (now, "=", f"{before} -> {after}")
        self._newest.append(entry)
        self._transitions.append(entry)

    # -- packing ----------------------------------------------------------------------------------------------------
    def _pack(self) -> None:
        packed, self._newest = _packed(self._newest), []
        self._segments[-1].packs.append(packed)
        self._segments[-1].size += len(packed)

    def _is_full(self, segment: _Segment) -> bool:
        """Whether a segment has half of the journal's share, but at least as many bytes as its state: a large state is
        not packed again after only a few events."""
        return segment.size >= max(self._shelf.share // 2 - len(segment.state), len(segment.state))

    def _begin(self, now: float) -> None:
        if self._newest and self._segments:
            self._pack()
        self._segments = [*self._segments[-1:], _Segment(now, _packed(self._state()))]

    @property
    def size(self) -> int:
        """The bytes of all packed states and entries."""
        return sum(len(segment.state) + segment.size for segment in self._segments)

    # -- reading ----------------------------------------------------------------------------------------------------
    def _entries(self) -> Iterator[Entry]:
        for segment in self._segments:
            for packed in segment.packs:
                yield from _unpacked(packed)
        yield from self._newest

    def begins_with(self) -> Any:
        """A new copy of the state before the first recorded event; None if there is no event."""
        return _unpacked(self._segments[0].state) if self._segments else None

    def taken(self) -> Taken | None:
        """All that it holds now, in no time; None if there is no event."""
        if not self._segments:
            return None
        packs = tuple(packed for segment in self._segments for packed in segment.packs)
        return Taken(self._segments[0].since, self._segments[0].state, packs, tuple(self._newest))

    def events(self) -> list[tuple[float, Any]]:
        """All recorded events with their times. Applied one by one to `begins_with`, they give the current state."""
        return [(now, value) for now, mark, value in self._entries() if mark == ">"]

    def story(self, word: str = "") -> list[str]:
        """The recorded lines in order; with `word` only lines that contain it."""
        return [text for entry in self._entries() if word in (text := line(*entry))]

    def transitions(self) -> list[str]:
        return [line(*entry) for entry in self._transitions]

    def write(self) -> None:
        """Write transitions, state and events to a new file, and rename it to `path`, if there is one. If the disk
        refuses, only a warning is logged: this must not change how the service ends."""
        if self._path is None:
            return
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            beside.write_text("\n".join(self._whole()), encoding="utf-8", errors="backslashreplace")
            beside.replace(self._path)
        except OSError as refused:
            log.warning("could not write the journal, the service continues: %s", refused)
            beside.unlink(missing_ok=True)

    def _whole(self) -> list[str]:
        """The lines of the file; the oldest ones are left out if the file would be too long."""
        state = self.begins_with()
        begins = [line(self._segments[0].since, "#", state)] if state is not None else []
        head, story = ["# transitions", *self.transitions(), "", "# begins with this state", *begins, ""], self.story()
        left, kept = self._longest_file - sum(len(each) + 1 for each in head), deque[str]()
        while story and (left := left - len(story[-1]) - 1) >= 0:
            kept.appendleft(story.pop())
        missing = [f"# {len(story)} older lines are left out"] if story else []
        return [*head, "# events and actions", *missing, *kept, ""]


class _ByFields(dict[type, Callable[[Any], tuple[Any, ...]]]):
    """Reducers that pickle frozen dataclasses by their fields in order, in a quarter of the usual time."""

    def __missing__(self, cls: type) -> Callable[[Any], tuple[Any, ...]]:
        if not (dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen):  # type: ignore[attr-defined]
            raise KeyError(cls)
        names = [each.name for each in dataclasses.fields(cls)]
        if len(names) > 1:
            get = operator.attrgetter(*names)
            self[cls] = lambda value: (cls, get(value))
        else:
            self[cls] = lambda value: (cls, tuple(getattr(value, name) for name in names))
        return self[cls]


_BY_FIELDS = _ByFields()


def _packed(value: object) -> bytes:
    """A value, pickled and compressed. A value that cannot be pickled is stored as text, so that the journal never
    stops its service."""
    try:
        return zlib.compress(_pickled(value), 1)
    except Exception as error:  # a foreign object may raise anything
        log.warning("the journal stores a value as text, because it cannot be pickled: %r", error)
        entries = [(now, mark, text(each)) for now, mark, each in value] if isinstance(value, list) else text(value)
        return zlib.compress(pickle.dumps(entries), 1)


def _pickled(value: object) -> bytes:
    into = io.BytesIO()
    pickler = pickle.Pickler(into, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _BY_FIELDS
    pickler.dump(value)
    return into.getvalue()


def _unpacked(packed: bytes) -> Any:
    """The value in a pack. Packs are made by this process and never leave it."""
    return pickle.loads(zlib.decompress(packed))


def line(now: float, mark: str, what: object) -> str:
    """One line of the format; `mark` is `>`, `<`, `=` or `#`."""
    return f"{now:12.3f} {mark} {what if isinstance(what, str) else text(what)}"


def text(value: object) -> str:
    """A frozen dataclass as `Name field=value …`, always on one line."""
    name, fields = type(value).__name__, _fields(value)
    return f"{name} {fields}" if fields else name


def _fields(value: object) -> str:
    if not dataclasses.is_dataclass(value):
        return _inner(value)
    shown = []
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if not _is_default(field, content):
            shown.append(f"{field.name}={'…' if field.name in SECRET else _inner(content)}")
    return " ".join(shown)


def _is_default(field: dataclasses.Field[object], content: object) -> bool:
    if field.default is not dataclasses.MISSING:
        return type(field.default) is type(content) and field.default == content
    if field.default_factory is not dataclasses.MISSING:
        return bool(field.default_factory() == content)
    return False


def _inner(value: object) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if type(value).__dict__.get("__str__") is not None:
            return str(value)
        return f"{type(value).__name__}({_fields(value)})"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else repr(value)
    if isinstance(value, set | frozenset):  # sorted, because their own order differs in each process
        return "{" + ", ".join(sorted(map(_inner, value))) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_inner(value[key])}" for key in value) + "}"
    if isinstance(value, tuple | list):
        return "(" + _joined(value) + ")" if isinstance(value, tuple) else "[" + _joined(value) + "]"
    return repr(value)


def _joined(values: Iterable[object]) -> str:
    return ", ".join(_inner(value) for value in values)
