"""The words of agent.sock, read. A line of the hooks' side becomes an event, or is refused with what was wrong with it.

Whatever process finds the socket may write to it, so a line is data of strangers until it has passed here.
"""

from __future__ import annotations

import json
from typing import TypeVar

from outrider.sidecar.core.events import (
    CheckpointRemembered,
    CheckpointSaved,
    Collected,
    CommandEnded,
    DataTold,
    Event,
    HookConnected,
    MemberChecked,
    PatternGivenUp,
    PatternMet,
    StateOfferMade,
    StateWritten,
    TerminationAsked,
    WorkerExited,
    WorkersNotStarted,
    WorkersStarted,
    WorkersStopped,
)
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, OrderId
from outrider.wire.messages.checkpoints import Remembered, StateSaved
from outrider.wire.messages.data_position import DATA_KINDS, DataSaid
from outrider.wire.messages.generation import WorkerExit
from outrider.wire.messages.log_lines import Group, LineMatched, PatternDropped
from outrider.wire.messages.node_check import Checked, PeerCheck

VERSION = 1
LARGEST_NUMBER = 1 << 62
MOST_RANKS = 1024
TIMES = ("compute", "cpu", "elapsed", "held_up")
"""Of a node check, in seconds."""
MOST_PEERS = 4
MOST_GROUPS = 100
MOST_NAMES = 1000
MOST_PRINTS, PRINT = 100, 60
MESSAGE = 500
KIND = 100
LONGEST = 3600.0
TRACEBACK_CHARACTERS = 8192

Line = dict[str, object]
T = TypeVar("T")


class BadLine(Exception):
    """The sentence names the field, what it held and what it may hold."""


def announcement(line: Line, connection: str, peer_pid: int) -> HookConnected:
    """The first line of a connection. Its pid must be the one that the kernel names."""
    version = number(line, "outrider", low=1)
    if version > VERSION:
        raise BadLine(f"version {version} of the hooks is newer than this sidecar, which speaks version {VERSION}")
    pid = number(line, "pid", low=1)
    if pid != peer_pid:
        raise BadLine(f"pid {pid} was announced by the process with pid {peer_pid}")
    what = text(line, "what")
    if what not in ("template", "launcher"):
        raise BadLine(f"what={what!r}: must be template or launcher")
    return HookConnected(
        connection=connection,
        what=what,
        pid=pid,
        rung=text(line, "rung"),
        rung_reason=text(line, "rung_reason"),
        nproc=optional_number(line, "nproc", low=1, high=MOST_RANKS),
        max_restarts=optional_number(line, "max_restarts"),
        running=NO_GENERATION if line.get("running") is None else generation(line, "running"),
        workers=_workers(line.get("workers", [])),
        can_start=_flag(line, "can_start", True),
    )


def event(line: Line, now: float, grace: float) -> Event | None:
    """Any later line; None for a word that a newer hooks' side may know and this sidecar does not. `grace`: the
    seconds a member has that is told to go."""
    match line.get("event"):
        case "started":
            return WorkersStarted(generation(line), _pids(line.get("pids")))
        case "not_started":
            return WorkersNotStarted(generation(line), text(line, "error"))
        case "exited":
            return WorkerExited(generation(line), _exit(line, now))
        case "stopped":
            return WorkersStopped(generation(line), number(line, "killed", default=0))
        case "saved":
            place = (number(line, "local_rank"), text(line, "path"), number(line, "step"))
            prints = texts(line, "prints", MOST_PRINTS, PRINT)
            asked, is_first = OrderId(number(line, "asked", default=0)), _flag(line, "first", False)
            return CheckpointSaved(generation(line), *place, asked, prints, is_first)
        case "command_ended":
            return CommandEnded(number(line, "code"), text(line, "reason"))
        case "collected":
            return Collected(number(line, "order", low=-LARGEST_NUMBER), json.dumps(line.get("body")))
        case "checked":
            return MemberChecked(_checked(line))
        case "matched":
            return PatternMet(_matched(line), min(now, _moment(line, now)))
        case "pattern_dropped":
            said = (text(line, "pattern"), text(line, "reason")[:MESSAGE], text(line, "line")[:MESSAGE])
            return PatternGivenUp(PatternDropped(generation(line), *said))
        case "data":
            return _data(line)
        case "offers":
            return StateOfferMade(generation(line), texts(line, "names", MOST_NAMES, KIND))
        case "state_saved":
            return StateWritten(_state_saved(line))
        case "remembered":
            what = (number(line, "rank"), number(line, "step"), number(line, "length", default=0))
            kind = (_flag(line, "sharded", False), _flag(line, "marked", False))
            return CheckpointRemembered(Remembered(generation(line), *what, *kind, number(line, "counted", default=0)))
        case "terminating":
            return TerminationAsked(text(line, "reason"), grace)
        case str():
            return None
        case other:
            raise BadLine(f"event={_quote(other)}: must be a text")


def number(line: Line, name: str, *, default: int | None = None, low: int = 0, high: int = LARGEST_NUMBER) -> int:
    value = line.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadLine(f"{name}={_quote(value)}: must be a whole number from {low} to {high}")
    return value


def optional_number(line: Line, name: str, *, low: int = 0, high: int = LARGEST_NUMBER) -> int | None:
    return None if line.get(name) is None else number(line, name, low=low, high=high)


def text(line: Line, name: str) -> str:
    value = line.get(name, "")
    if not isinstance(value, str):
        raise BadLine(f"{name}={_quote(value)}: must be a text")
    return value[:TRACEBACK_CHARACTERS]


def texts(line: Line, name: str, most: int, longest: int) -> tuple[str, ...]:
    value = line.get(name, [])
    if not isinstance(value, list) or len(value) > most or not all(isinstance(each, str) for each in value):
        raise BadLine(f"{name}={_quote(value)}: must be a list of at most {most} texts")
    return tuple(each[:longest] for each in value)


def generation(line: Line, name: str = "generation") -> Generation:
    value = line.get(name)
    if not isinstance(value, list) or len(value) != 2:
        raise BadLine(f"{name}={_quote(value)}: must be [term, number]")
    parts = {"term": value[0], "number": value[1]}
    return Generation(number(parts, "term"), number(parts, "number"))


def _checked(line: Line) -> Checked:
    """Times that no clock can have shown are a result of their own: the connection need not be closed for them."""
    order, number_ = OrderId(number(line, "order")), number(line, "round")
    peers = line.get("peers", [])
    if not isinstance(peers, list) or len(peers) > MOST_PEERS or not all(isinstance(peer, dict) for peer in peers):
        raise BadLine(f"peers={_quote(peers)}: must be a list of at most {MOST_PEERS} objects")
    times = [_seconds(line, name) for name in TIMES]
    of_peers = [_seconds(peer, "seconds") for peer in peers]
    if None in times or None in of_peers:
        said = _quote({name: line.get(name) for name in (*TIMES, "peers")})
        return Checked(order, number_, "absurd", f"the probe's times cannot be: {said}")
    compute, cpu, elapsed, held_up = (each or 0.0 for each in times)
    found = [PeerCheck(MemberId(text(p, "member")), s or 0.0, text(p, "error"))
             for p, s in zip(peers, of_peers, strict=True)]  # fmt: skip
    result, error, kind = text(line, "result"), text(line, "error"), text(line, "kind")
    return Checked(order, number_, result, error[:MESSAGE], kind, compute, cpu, elapsed, tuple(found), held_up)


def _matched(line: Line) -> LineMatched:
    groups = line.get("groups", {})
    if not isinstance(groups, dict) or len(groups) > MOST_GROUPS:
        raise BadLine(f"groups={_quote(groups)}: must be an object of at most {MOST_GROUPS} texts")
    return LineMatched(
        generation=generation(line),
        rank=number(line, "rank"),
        pattern=text(line, "pattern"),
        line=text(line, "line")[:MESSAGE],
        serial=number(line, "serial"),
        count=number(line, "count", default=1, low=1),
        groups=tuple(Group(name, text(groups, name)[:MESSAGE]) for name in groups),
    )


def _data(line: Line) -> DataTold | None:
    """None for a word that newer hooks may know."""
    word, detail = text(line, "word"), line.get("detail", {})
    if word not in DATA_KINDS:
        return None
    if not isinstance(detail, dict) or len(detail) > MOST_GROUPS:
        raise BadLine(f"detail={_quote(detail)}: must be an object of at most {MOST_GROUPS} numbers")
    rank, sentence = number(line, "rank"), text(line, "sentence")[:MESSAGE]
    samples = number(detail, "samples", default=0)
    said = DataSaid(generation(line), rank, word, sentence, _flag(line, "warning", False), samples)
    return DataTold(said, number(line, "local_rank"), tuple((name, str(number(detail, name))) for name in detail))


def _state_saved(line: Line) -> StateSaved:
    return StateSaved(
        order=OrderId(number(line, "order")),
        generation=generation(line),
        step=number(line, "step", default=0),
        path=text(line, "path"),
        seconds=_seconds(line, "seconds") or 0.0,
        error=text(line, "error")[:MESSAGE],
    )


def _seconds(line: Line, name: str) -> float | None:
    value = line.get(name, 0.0)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= LONGEST else None


def _exit(line: Line, now: float) -> WorkerExit:
    age = now - _moment(line, now)
    error = line.get("error") or {}
    if not isinstance(error, dict):
        raise BadLine(f"error={_quote(error)}: must be an object or null")
    return WorkerExit(
        local_rank=number(line, "local_rank", high=MOST_RANKS),
        pid=number(line, "pid"),
        code=optional_number(line, "code", high=255),
        signal=optional_number(line, "signal", high=255),
        out_of_memory=_flag(line, "out_of_memory", False),
        age=max(0.0, min(age, 1e6)),
        error_type=text(error, "type"),
        error_message=text(error, "message"),
        error_frame=text(error, "frame"),
        traceback=_tail(error.get("traceback")),
        in_import=_flag(error, "in_import", False),
    )


def _moment(line: Line, now: float) -> float:
    """By time.monotonic(), which is one clock in a pod."""
    at = line.get("at", now)
    return at if isinstance(at, int | float) else now


def _tail(traceback: object) -> str:
    """The end of a long traceback says more than its beginning."""
    return traceback[-TRACEBACK_CHARACTERS:] if isinstance(traceback, str) else ""


def _flag(line: Line, name: str, default: bool) -> bool:
    value = line.get(name, default)
    if not isinstance(value, bool):
        raise BadLine(f"{name}={_quote(value)}: must be true or false")
    return value


def _pids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_RANKS:
        raise BadLine(f"pids={_quote(value)}: must be a list of at most {MOST_RANKS} pids")
    return tuple(number({"pid": pid}, "pid", low=1) for pid in value)


def _workers(value: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or len(value) > MOST_RANKS:
        raise BadLine(f"workers={_quote(value)}: must be a list of [local rank, pid]")
    return tuple(_worker(each) for each in value)


def _worker(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise BadLine(f"workers: {_quote(value)}: must be [local rank, pid]")
    parts = {"local_rank": value[0], "pid": value[1]}
    return number(parts, "local_rank", high=MOST_RANKS), number(parts, "pid", low=1)


def _quote(value: object) -> str:
    return repr(value)[:80]
