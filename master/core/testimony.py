"""What ranks say when they are asked where they are, read from the members' answers.

An answer is JSON that anybody may have written: what is not as it should be is not there. A rank is known by its
member's place in the world and its local rank, whatever number it gives itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from master.core.state import Place
from wire.ids import MemberId

ENDED, STOPPED, STUCK = "ended", "stopped", "uninterruptible"
COMPLETED = "completed"
DEFAULT_GROUP = ("0", "default_pg")
FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+|\?+) in (?P<name>.*)$')
THREAD = re.compile(r"^(Current thread|Thread) 0x")
LONGEST_WORD = 200


@dataclass(frozen=True, slots=True)
class Call:
    """A rank's last collective in one process group, or the oldest there that is not over."""

    group: str
    """Unlike for unlike groups."""
    name: str
    """What users call it."""
    seq: int
    op: str
    is_over: bool
    shape: str
    """Sizes and types: equal where ranks call the same thing."""
    frame: str
    age: float
    members: frozenset[int] = frozenset()
    """The group's ranks, empty where they are not known."""

    @property
    def is_of_all(self) -> bool:
        return self.name == DEFAULT_GROUP[1] or self.group == DEFAULT_GROUP[0]


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of one rank."""

    rank: int
    member: MemberId
    process: str = ""
    """ended, stopped, uninterruptible; empty where it is nothing of that kind."""
    phase: str = ""
    has_recorder: bool = False
    """Its process itself has answered which collectives it called."""
    calls: tuple[Call, ...] = ()
    stack: tuple[str, ...] = ()
    """`file:line function` of its main thread, the deepest first; empty where it gave none."""

    @property
    def is_mute(self) -> bool:
        return not self.has_recorder and not self.stack and self.process != ENDED


@dataclass(slots=True)
class _Rows:
    collectives: dict[int, dict[str, Any]] = field(default_factory=dict)
    stacks: dict[int, dict[str, Any]] = field(default_factory=dict)
    answered: bool = False


def read(
    places: Iterable[Place],
    done: set[MemberId],
    collectives: Iterable[tuple[MemberId, str]],
    stacks: Iterable[tuple[MemberId, str]],
) -> list[Told]:
    """By rank. One that its member does not name, though it answers, has ended."""
    members: dict[MemberId, _Rows] = {}
    for member, body in collectives:
        rows = members.setdefault(member, _Rows())
        rows.collectives = _rows(body)
        rows.answered = rows.answered or bool(rows.collectives)
    for member, body in stacks:
        rows = members.setdefault(member, _Rows())
        rows.stacks = _rows(body)
        rows.answered = rows.answered or bool(rows.stacks)
    found = []
    for place in places:
        rows = members.get(place.member, _Rows())
        for local_rank in range(place.nproc):
            found.append(_told(place, local_rank, rows, is_done=place.member in done))
    return sorted(found, key=lambda told: told.rank)


def _told(place: Place, local_rank: int, rows: _Rows, *, is_done: bool) -> Told:
    rank = place.first_rank + local_rank
    one, other = rows.collectives.get(local_rank, {}), rows.stacks.get(local_rank, {})
    if is_done or (rows.answered and not one and not other):
        return Told(rank, place.member, ENDED)
    process = one.get("process") or other.get("process") or ""
    phase = other.get("phase") or one.get("phase") or ""
    return Told(
        rank,
        place.member,
        process if process in (STOPPED, STUCK) else "",
        phase if isinstance(phase, str) else "",
        "collective" in one,
        tuple(_calls(one)),
        _stack(other.get("stack")),
    )


def _rows(body: str) -> dict[int, dict[str, Any]]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    rows = parsed.get("ranks") if isinstance(parsed, dict) else None
    listed = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {row["local_rank"]: row for row in listed if isinstance(row.get("local_rank"), int)}


# -- collectives --------------------------------------------------------------------------------------------------
def _calls(row: Mapping[str, Any]) -> Iterable[Call]:
    """One a group; of hooks that tell only one, that one."""
    listed = row.get("groups")
    entries = listed if isinstance(listed, list) and listed else [row.get("collective")]
    for entry in entries:
        call = _call(entry) if isinstance(entry, dict) else None
        if call is not None:
            yield call


def _call(entry: Mapping[str, Any]) -> Call | None:
    seq, age = entry.get("seq"), entry.get("age")
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0 or entry.get("p2p"):
        return None
    if not isinstance(age, int | float) or not math.isfinite(age) or age < 0:
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
        members,
    )


def _word(value: object) -> str:
    return "" if value is None else str(value)[:LONGEST_WORD]


# -- stacks -------------------------------------------------------------------------------------------------------
def _stack(text: object) -> tuple[str, ...]:
    """Of the main thread, which faulthandler writes last: it is the oldest."""
    frames: list[str] = []
    for line in text.splitlines() if isinstance(text, str) else ():
        if THREAD.match(line):
            frames = []
        elif match := FRAME.match(line):
            frames.append(f"{match['file']}:{match['line']} {match['name']}"[:LONGEST_WORD])
    return tuple(frames)


def short(frame: str) -> str:
    """`train.py:33 main`: the folder says nothing that its user does not know."""
    path, colon, rest = frame.rpartition(":")
    return f"{path.rsplit('/', 1)[-1]}{colon}{rest}"


NOT_THE_SCRIPTS = ("/site-packages/", "/dist-packages/", "<frozen", "/training_hooks/", "<string>")
LIBRARY = re.compile(r"/lib(64)?/python\d[.\d]*/")


def place(stack: tuple[str, ...]) -> str:
    """The deepest line that the user wrote; empty where there is none."""
    for frame in stack:
        if not any(part in frame for part in NOT_THE_SCRIPTS) and not LIBRARY.search(frame):
            return short(frame)
    return ""


def waits_for_others(stack: tuple[str, ...]) -> bool:
    """It is inside a call of torch.distributed, or in a backward pass, in which DDP waits for the others' gradients."""
    return any("/torch/distributed/" in frame or frame.endswith(" _engine_run_backward") for frame in stack)


def is_meeting(stack: tuple[str, ...]) -> bool:
    """It waits for the others before there is a process group."""
    return any(frame.endswith((" init_process_group", " _env_rendezvous_handler")) for frame in stack)
