"""Parses the JSON in which a member answers what its ranks are doing.

Any process may have written an answer, so invalid parts of it are ignored. Thousands of answers come within seconds, so
each is parsed in the step that brings it, and values that many of them share are stored once (`Known`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

from outrider.master.core.state.hangs import Call, Known, Row, Rows, Used

COMPLETED = "completed"
FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+|\?+) in (?P<name>.*)$')
THREAD = re.compile(r"^(Current thread|Thread) 0x")
LONGEST_WORD = 200

Found = TypeVar("Found")


def rows(body: str, known: Known) -> Rows:
    """The rows by local rank; empty if the text is not such an answer."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    found = parsed.get("ranks") if isinstance(parsed, dict) else None
    listed = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    return {row["local_rank"]: _row(row, known) for row in listed if isinstance(row.get("local_rank"), int)}


def _row(row: Mapping[str, Any], known: Known) -> Row:
    calls = tuple(_calls(row, known)) if "collective" in row else None
    frames = row.get("frames")
    return Row(
        _text(row.get("process")),
        _text(row.get("phase")),
        calls,
        _stack(row.get("stack"), known),
        _used(row.get("used")),
        frames if isinstance(frames, int) else None,
        row.get("left") is True,
    )


def _used(found: object) -> Used | None:
    values = [found.get(name) for name in Used._fields] if isinstance(found, dict) else [None]
    numbers = [value for value in values if _is_number(value)]
    return Used(*numbers) if len(numbers) == len(Used._fields) else None


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number: JSON may hold integers beyond the range of floats."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def _shared(value: Found, known: Known) -> Found:
    found: Found = known.setdefault(value, value)
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# -- collectives --------------------------------------------------------------------------------------------------
def _calls(row: Mapping[str, Any], known: Known) -> Iterable[Call]:
    """One call for each group; older hooks report a single one."""
    listed = row.get("groups")
    entries = listed if isinstance(listed, list) and listed else [row.get("collective")]
    for entry in entries:
        call = _call(entry, known) if isinstance(entry, dict) else None
        if call is not None:
            yield call


def _call(entry: Mapping[str, Any], known: Known) -> Call | None:
    seq, age = entry.get("seq"), entry.get("age")
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0 or entry.get("p2p"):
        return None
    if not _is_number(age) or age < 0:
        return None
    name = _word(entry.get("group"))
    ranks = entry.get("ranks")
    members = frozenset(r for r in ranks if isinstance(r, int)) if isinstance(ranks, list) else frozenset()
    shape = f"{_word(entry.get('sizes'))} {_word(entry.get('dtypes'))}"
    return Call(
        _word(entry.get("id")) or name,
        name,
        seq,
        _word(entry.get("op")),
        entry.get("state") == COMPLETED,
        shape,
        short(_word(entry.get("frame"))),
        float(age),
        _shared(members, known),
    )


def _word(value: object) -> str:
    return "" if value is None else str(value)[:LONGEST_WORD]


# -- stacks -------------------------------------------------------------------------------------------------------
def _stack(text: object, known: Known) -> tuple[str, ...]:
    """The frames of the main thread, which faulthandler writes last because it is the oldest."""
    frames: list[str] = []
    for line in text.splitlines() if isinstance(text, str) else ():
        if THREAD.match(line):
            frames = []
        elif match := FRAME.match(line):
            frames.append(f"{match['file']}:{match['line']} {match['name']}"[:LONGEST_WORD])
    return _shared(tuple(_shared(frame, known) for frame in frames), known)


def short(frame: str) -> str:
    """`train.py:33 main`: the frame without the folder, which the user knows."""
    path, colon, rest = frame.rpartition(":")
    return f"{path.rsplit('/', 1)[-1]}{colon}{rest}"
