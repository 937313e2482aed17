"""Parses the lines of agent.sock: each becomes an event, or is refused with the error.

Any process that finds the socket may write to it, so a line is untrusted until it has passed here.
"""

from __future__ import annotations

import json
from typing import Any

from outrider.sidecar.core.events import (
    Collected,
    CommandEnded,
    DataTold,
    Event,
    HookConnected,
    HookSaid,
    PatternMet,
    TerminationAsked,
    WorkerExited,
    WorkersNotStarted,
    WorkersStarted,
    WorkersStopped,
)
from outrider.wire import reader
from outrider.wire.ids import NO_GENERATION, NO_ORDER, Generation, MemberId
from outrider.wire.messages.checkpoints import Remembered, Saved, StateOffered, StateSaved
from outrider.wire.messages.data_position import DATA_KINDS, DataSaid
from outrider.wire.messages.generation import WorkerExit
from outrider.wire.messages.log_lines import Group, LineMatched, PatternDropped
from outrider.wire.messages.node_check import Checked, PeerCheck
from outrider.wire.reader import Wrong, entry, flag, optional, parts, row, text, whole

VERSION = 1
LARGEST_NUMBER = 1 << 62
MOST_RANKS = 1024
TIMES = ("compute", "cpu", "elapsed", "held_up")
"""Fields of a node check with times in seconds."""
MOST_PEERS = 4
MOST_GROUPS = 100
MOST_NAMES = 1000
MOST_PRINTS, PRINT = 100, 60
MESSAGE = 500
KIND = 100
LONGEST = 3600.0
TRACEBACK_CHARACTERS = 8192

Line = dict[str, Any]


class BadLine(Exception):
    """The announcement is not valid for this sidecar; the message says why."""


def _seconds(value: object) -> float | None:
    """The time in seconds; None if it is impossible (negative, above `LONGEST` or not a number)."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= LONGEST else None


def _what(value: object) -> object:
    if value == "template" or value == "launcher":
        return value
    raise Wrong(value, "template or launcher")


def _map(value: object) -> Line:
    if isinstance(value, dict):
        return value
    raise Wrong(value, "a map")


def _few(value: object) -> Line:
    """A map with names chosen by the user, of limited size."""
    found = _map(value)
    if len(found) > MOST_GROUPS:
        raise Wrong(f"a map of {len(found)}", f"a map of at most {MOST_GROUPS}")
    return found


_number, _pid, _local_rank = whole(0, LARGEST_NUMBER), whole(1, LARGEST_NUMBER), whole(0, MOST_RANKS)
_nproc, _code, _any_order = whole(1, MOST_RANKS), whole(0, 255), whole(-LARGEST_NUMBER, LARGEST_NUMBER)
_text, _message = text(TRACEBACK_CHARACTERS, cut=""), text(MESSAGE, cut="")
_pids = row(_pid, list, MOST_RANKS)
_workers = row(parts((_local_rank, _pid), list, 2, 2), list, MOST_RANKS)
_names, _prints = row(text(KIND, cut=""), list, MOST_NAMES), row(text(PRINT, cut=""), list, MOST_PRINTS)
_peers = row(_map, list, MOST_PEERS)
_generation = reader.generation(list, 2, LARGEST_NUMBER)
_FORMAT = reader.Format(
    {int: _number, bool: flag, float: lambda value: _seconds(value) or 0.0, Generation: _generation},
    lambda longest: _message if longest.prose else _text,
    list,
    absent={str: ""},
)
_stopped = _FORMAT.reader(WorkersStopped)
_messages = {
    "pattern_dropped": _FORMAT.reader(PatternDropped),
    "state_saved": _FORMAT.reader(StateSaved),
    "remembered": _FORMAT.reader(Remembered),
}
"""Lines that have the fields of a message to the master."""


def announcement(line: Line, connection: str, peer_pid: int) -> HookConnected:
    """Parses the first line of a connection, whose pid must be the one that the kernel reports.

    Raises BadLine or Wrong.
    """
    version = entry(line, "outrider", _pid)
    if version > VERSION:
        raise BadLine(f"the hooks speak version {version}, but this sidecar supports versions up to {VERSION}")
    pid = entry(line, "pid", _pid)
    if pid != peer_pid:
        raise BadLine(f"the process with pid {peer_pid} announced pid {pid}")
    return HookConnected(
        connection=connection,
        what=entry(line, "what", _what),
        pid=pid,
        rung=entry(line, "rung", _text, ""),
        rung_reason=entry(line, "rung_reason", _text, ""),
        nproc=entry(line, "nproc", optional(_nproc), None),
        max_restarts=entry(line, "max_restarts", optional(_number), None),
        running=entry(line, "running", optional(_generation), None) or NO_GENERATION,
        workers=entry(line, "workers", _workers, ()),
        can_start=entry(line, "can_start", flag, True),
    )


def event(line: Line, now: float, grace: float) -> Event | None:
    """Parses any later line; None for an event that only newer hooks know. `grace`: seconds that a member has to end
    after SIGTERM."""
    match entry(line, "event", text()):
        case "started":
            return WorkersStarted(_of(line), entry(line, "pids", _pids))
        case "not_started":
            return WorkersNotStarted(_of(line), entry(line, "error", _text, ""))
        case "exited":
            return WorkerExited(_of(line), _exit(line, now))
        case "stopped":
            found: WorkersStopped = _stopped(line)
            return found
        case "saved":
            return HookSaid(_saved(line))
        case "command_ended":
            return CommandEnded(entry(line, "code", _number), entry(line, "reason", _text, ""))
        case "collected":
            return Collected(entry(line, "order", _any_order), json.dumps(line.get("body")))
        case "checked":
            return HookSaid(_checked(line))
        case "matched":
            return PatternMet(_matched(line), min(now, _moment(line, now)))
        case "data":
            return _data(line)
        case "offers":
            return HookSaid(StateOffered(_of(line), entry(line, "names", _names, ())))
        case "pattern_dropped" | "state_saved" | "remembered" as name:
            return HookSaid(_messages[name](line))
        case "terminating":
            return TerminationAsked(entry(line, "reason", _text, ""), grace)
    return None


def _of(line: Line) -> Generation:
    found: Generation = entry(line, "generation", _generation)
    return found


def _saved(line: Line) -> Saved:
    entry(line, "local_rank", _number)  # checked only: the master does not need it
    return Saved(
        generation=_of(line),
        path=entry(line, "path", _text, ""),
        step=entry(line, "step", _number),
        asked=entry(line, "asked", _number, NO_ORDER),
        prints=entry(line, "prints", _prints, ()),
        is_first=entry(line, "first", flag, False),
    )


def _checked(line: Line) -> Checked:
    """Parses a node check; impossible times give the result "absurd" instead of closing the connection."""
    order, number = entry(line, "order", _number), entry(line, "round", _number)
    peers = entry(line, "peers", _peers, ())
    times = [_seconds(line.get(name, 0.0)) for name in TIMES]
    of_peers = [_seconds(peer.get("seconds", 0.0)) for peer in peers]
    if None in times or None in of_peers:
        shown = repr({name: line.get(name) for name in (*TIMES, "peers")})[:80]
        return Checked(order, number, "absurd", f"the probe reported impossible times: {shown}")
    compute, cpu, elapsed, held_up = (each or 0.0 for each in times)
    found = [PeerCheck(MemberId(entry(p, "member", _text, "")), s or 0.0, entry(p, "error", _text, ""))
             for p, s in zip(peers, of_peers, strict=True)]  # fmt: skip
    result, error, kind = (entry(line, *what, "") for what in (("result", _text), ("error", _message), ("kind", _text)))
    return Checked(order, number, result, error, kind, compute, cpu, elapsed, tuple(found), held_up)


def _matched(line: Line) -> LineMatched:
    return LineMatched(
        generation=_of(line),
        rank=entry(line, "rank", _number),
        pattern=entry(line, "pattern", _text, ""),
        line=entry(line, "line", _message, ""),
        serial=entry(line, "serial", _number),
        count=entry(line, "count", _pid, 1),
        groups=entry(line, "groups", _groups, ()),
    )


def _groups(value: object) -> tuple[Group, ...]:
    groups = _few(value)
    return tuple(Group(name, entry(groups, name, _message)) for name in groups)


def _data(line: Line) -> DataTold | None:
    """Parses a report about data; None for a kind that only newer hooks know."""
    word = entry(line, "word", _text, "")
    if word not in DATA_KINDS:
        return None
    detail = entry(line, "detail", lambda value: {name: entry(value, name, _number) for name in _few(value)}, {})
    rank, sentence = entry(line, "rank", _number), entry(line, "sentence", _message, "")
    is_warning, samples = entry(line, "warning", flag, False), detail.get("samples", 0)
    report = DataSaid(_of(line), rank, word, sentence, is_warning, samples)
    return DataTold(report, entry(line, "local_rank", _number), tuple((name, str(detail[name])) for name in detail))


def _exit(line: Line, now: float) -> WorkerExit:
    return WorkerExit(
        local_rank=entry(line, "local_rank", _local_rank),
        pid=entry(line, "pid", _number),
        code=entry(line, "code", optional(_code), None),
        signal=entry(line, "signal", optional(_code), None),
        out_of_memory=entry(line, "out_of_memory", flag, False),
        age=max(0.0, min(now - _moment(line, now), 1e6)),
        **entry(line, "error", _error, {}),
    )


def _error(value: object) -> Line:
    error = _map(value or {})
    return {
        "error_type": entry(error, "type", _text, ""),
        "error_message": entry(error, "message", _text, ""),
        "error_frame": entry(error, "frame", _text, ""),
        "traceback": _tail(error.get("traceback")),
        "in_import": entry(error, "in_import", flag, False),
    }


def _moment(line: Line, now: float) -> float:
    """The line's time by time.monotonic(), which all processes of a pod share; never later than now."""
    at = line.get("at", now)
    return float(at) if isinstance(at, int | float) and 0 <= at <= now else now


def _tail(traceback: object) -> str:
    """The end of a long traceback, which is more useful than its beginning."""
    return traceback[-TRACEBACK_CHARACTERS:] if isinstance(traceback, str) else ""
