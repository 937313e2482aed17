"""What a core was told, what it wanted, and how its state changed, as lines of one text format.

The same format is used by the journal of a running service, the golden transcripts of the tests, a failing simulation
and the docs, so that whoever can read one can read all, and a line can be carried from one to the other:

        12.345 > WorkerExited generation=1.2 exit=WorkerExit(local_rank=0 pid=9 code=1)
        12.345 = running -> failed
        12.345 < Send message=Exited(…) generation=1.2 reason='worker process 0 exited with 1'

`>` is an event, `<` an action, `=` a change of state. Fields that have their default are left out.

Values are kept and turned into text only when somebody asks: a master takes 10,000 reports a second.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

EVENTS_KEPT = 10_000
TRANSITIONS_KEPT = 2_000
SECRET = frozenset({"token", "memory_key"})
"""Fields whose content is never written down: a journal is passed around."""

log = logging.getLogger("journal")


class Journal:
    """The last events and actions, and the last changes of state; `write` puts them into `path` as a whole."""

    def __init__(self, path: Path | None = None, kept: int = EVENTS_KEPT) -> None:
        self._path = path
        self._lines: deque[tuple[float, str, object]] = deque(maxlen=kept)
        self._transitions: deque[tuple[float, str, object]] = deque(maxlen=TRANSITIONS_KEPT)

    def event(self, now: float, event: object) -> None:
        self._lines.append((now, ">", event))

    def action(self, now: float, action: object) -> None:
        self._lines.append((now, "<", action))

    def transition(self, now: float, before: str, after: str) -> None:
        entry = (now, "=", f"{before} -> {after}")
        self._lines.append(entry)
        self._transitions.append(entry)

    def story(self, word: str = "") -> list[str]:
        """The kept lines in order, only those that contain `word` where one is given."""
        return [text for entry in self._lines if word in (text := line(*entry))]

    def transitions(self) -> list[str]:
        return [line(*entry) for entry in self._transitions]

    def write(self) -> None:
        """Writes transitions, then events, beside the old file and renames; without a path it does nothing. A disk that
        takes no journal must not change how its service ends."""
        if self._path is None:
            return
        parts = ["# transitions", *self.transitions(), "", "# events and actions", *self.story(), ""]
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            beside.write_text("\n".join(parts), encoding="utf-8")
            beside.replace(self._path)
        except OSError as refused:
            log.warning("the journal cannot be written: %s", refused)
            beside.unlink(missing_ok=True)


def line(now: float, mark: str, what: object) -> str:
    """One line of the format; `mark` is `>`, `<` or `=`."""
    return f"{now:12.3f} {mark} {what if isinstance(what, str) else text(what)}"


def text(value: object) -> str:
    """A frozen dataclass as `Name field=value …`, on one line whatever is in it."""
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
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_inner(value[key])}" for key in value) + "}"
    if isinstance(value, tuple | list):
        return "(" + _joined(value) + ")" if isinstance(value, tuple) else "[" + _joined(value) + "]"
    return repr(value)


def _joined(values: Iterable[object]) -> str:
    return ", ".join(_inner(value) for value in values)
