"""Reads the documents of a report. Nothing in them is trusted: a wrong part becomes a sentence, the rest is read.

Texts lose terminal escapes and control characters here, and are cut; lists keep their newest entries. What is read can
therefore be shown as it is, escaped for HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

from outrider.report.documents import Amounts, Decision, Event, Evidence, Fault, Member, Part, Span, Status, Track
from outrider.wire.messages.text_limits import Longest
from outrider.wire.reader import Format, Read, Wrong, finite, flag, plain, quoted, whole

READS: Final = 1
"""The version of documents that this release reads in full."""
MOST_ENTRIES: Final = 2000
"""The most entries of a list without a limit of its own."""
MOST: Final[Mapping[Any, int]] = {
    Fault: 200, Track: 33_000, Member: 33_000, Span: 40_000, Event: 2000, Decision: 40, Evidence: 40, int: 64, str: 64,
}  # fmt: skip
"""The most entries of a list, by their type."""
PROBLEMS: Final = 20
"""The most problems that are reported one by one."""
GREATEST: Final = 1e11
"""The greatest number of seconds; as a Unix time it is in the year 5138."""
ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]{0,500}(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff\ufffe\uffff]"
)


def clean(text: str) -> str:
    """The text without terminal escapes; other characters that are not seen or change the direction become \ufffd."""
    return UNSEEN.sub("\ufffd", ESCAPE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def _text(limit: Longest) -> Read:
    def read_text(value: Any) -> Any:
        if type(value) is not str:
            raise Wrong(value, "text")
        return clean(value if len(value) <= limit.characters else value[: limit.characters - 1] + "…")

    return read_text


def _seconds(value: Any) -> Any:
    if type(value) in (int, float) and not -GREATEST <= value <= GREATEST:  # also NaN
        raise Wrong(value, "a number of seconds")
    return finite(value)


def _amounts(value: Any) -> Any:
    if type(value) is not dict or len(value) > 100:
        raise Wrong(value, "a map of at most 100 numbers")
    return {clean(str(name))[:60]: max(0.0, _seconds(each)) for name, each in value.items()}


FORMAT: Final = Format(
    scalars={int: whole(-(1 << 53), 1 << 53), float: _seconds, bool: flag, Amounts: _amounts},
    text=_text,
    array=list,
    may_grow=True,
)


@cache
def _plan(cls: Any) -> tuple[tuple[str, Any, Read | None], ...]:
    """Every field of a document's type: its name, its type, and the reader unless it is a document or a list."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple((each.name, hints[each.name], _simple(hints[each.name])) for each in fields(cls))


def _simple(hint: Any) -> Read | None:
    return None if _is_document(hint) or get_origin(hint) is tuple else FORMAT.reader(hint)


def _is_document(hint: Any) -> bool:
    return is_dataclass(hint)


@cache
def _row(hint: Any) -> Read:
    return FORMAT.reader(hint)


class Reader:
    """Reads documents; `problems` are the sentences about what was wrong."""

    def __init__(self) -> None:
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        found = list(self._problems)
        more = [f"{len(found) - PROBLEMS} more parts were wrong in the same or another way."] * (len(found) > PROBLEMS)
        return found[:PROBLEMS] + more

    def note(self, sentence: str) -> None:
        self._problems[clean(sentence)] = None

    def status(self, document: object) -> Status:
        """The status; an ElasticJob is read as well."""
        if type(document) is dict and "metadata" in document:
            document = _of_elastic_job(document)
        return self._document("status", document, Status) or Status()

    def part(self, name: str, document: object) -> Part | None:
        found: Part | None = self._document(name, document, Part)
        return found

    def events(self, lines: object) -> tuple[Event, ...]:
        """Events as `events.jsonl` has them."""
        found = []
        for line in lines if type(lines) is list else ():
            at = unix(line.get("time")) if type(line) is dict else None
            if at is not None:
                found.append([at, line.get("kind"), line.get("severity", ""), line.get("member"), line.get("reason")])
        return self._list("events", found, Event)

    # -- generic --------------------------------------------------------------------------------------------------
    def _document(self, where: str, value: object, cls: Any) -> Any:
        if type(value) is not dict:
            self.note(f"{where} is left out: it is {quoted(value)}, and must be a map.")
            return None
        found = {}
        for name, hint, read in _plan(cls):
            if name in value:
                try:
                    found[name] = self._value(f"{where}.{name}", value[name], hint, read)
                except Wrong as wrong:
                    self.note(f"{where}.{name} is left out: {wrong.problem}.")
        version = found.get("version", READS)
        if version > READS:
            self.note(f"{where} has version {version}, and this release reads version {READS}: parts may be missing.")
        return cls(**found)

    def _value(self, where: str, value: Any, hint: Any, read: Read | None) -> Any:
        if read is not None:
            return read(value)
        if _is_document(hint):
            return self._document(where, value, hint) or hint()
        return self._list(where, value, get_args(hint)[0])

    def _list(self, where: str, value: object, hint: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Wrong(value, "an array")
        most = MOST.get(plain(hint), MOST_ENTRIES)
        if len(value) > most:
            self.note(f"{where} has {len(value):,} entries; the last {most:,} are read.")
            value = value[-most:]
        if _is_document(hint):
            return tuple(filter(None, (self._document(f"{where}[{i}]", each, hint) for i, each in enumerate(value))))
        found, wrong, first = [], 0, ""
        read = _row(hint)
        for each in value:
            try:
                found.append(read(each))
            except Wrong as error:
                wrong, first = wrong + 1, first or f"{error.path}: {error.problem}".removeprefix(": ")
        if wrong:
            self.note(f"{where}: {wrong:,} of {len(value):,} entries are left out; the first: {first}.")
        return tuple(found)


# -- the other forms ----------------------------------------------------------------------------------------------
def unix(stamp: object) -> float | None:
    """The Unix time of an RFC 3339 timestamp; None if it is not one."""
    try:
        at = datetime.fromisoformat(str(stamp)[:40]).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return at if 0 <= at <= GREATEST else None


def _of_elastic_job(job: dict[str, Any]) -> dict[str, Any]:
    """The status document in an ElasticJob, whose names are Kubernetes'."""
    status, metadata = _map(job.get("status")), _map(job.get("metadata"))
    found = dict(_renamed(status))
    if type(found.get("phase")) is str:
        found["phase"] = found["phase"].lower()
    for name in ("faults", "members"):
        if type(found.get(name)) is list:
            found[name] = [dict(_renamed(each)) if type(each) is dict else each for each in found[name]]
    return {**found, "job": metadata.get("name", "")}


def _renamed(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if value is not None:
            yield re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", str(name)), value


def _map(value: object) -> dict[str, Any]:
    return value if type(value) is dict else {}
