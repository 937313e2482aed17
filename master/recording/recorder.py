"""Writes a journal as a recording: lines of JSON, of which only the first has no word of the job.

    {"format": "outrider-recording", "version": 1, "outrider": "0.1.0", "kind": "State"}
    {"since": 12.3, "state": {…}}
    [12.345, ">", {"@": "events.Woke"}]      an event, as the core got it
    [12.345, "<", {"@": "actions.Send", …}]  an action that followed, without its reason
    {"end": 2}                               the number of entries before it; without it the recording is cut off

A recording is bounded. If it would be longer, it ends earlier, and its last line says how many entries were left out.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import outrider
from outrider.master.core.actions import Action
from outrider.master.core.events import Began, Event, PodGone, PodSeen, PodsListed, SidecarSaid
from outrider.master.core.job_kinds import Job
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.recording import codec
from outrider.master.recording.scrubbing import Scrubber
from outrider.runtime.journal import Journal, Taken
from outrider.wire.messages.membership import Hello

FORMAT, VERSION = "outrider-recording", 1
MOST_BYTES = 64 << 20
"""The most bytes of a recording, before it is compressed."""
MOST_AT_THE_END = 16 << 20
"""The same for the one that a local master writes when it ends, which the command waits for."""
FILE, FAILED = "recording.jsonl.gz", "recording-failed.jsonl.gz"
"""The names of that file in the job's folder; the second one if its core has failed, because another master follows."""
JOBS: dict[str, type] = {each.__name__: each for each in Job.__args__}

log = logging.getLogger("recording")


def lines(taken: Taken | None, most: int = MOST_BYTES) -> Iterator[bytes]:
    """The recording of what was taken of a journal; nothing if it holds nothing, or is not the journal of a master.

    A piece takes some milliseconds, but for the state of a job with thousands of members; empty pieces come between.
    """
    state = taken.state() if taken is not None else None
    if taken is None or type(state) not in JOBS.values():
        return
    scrubber, kind = Scrubber(), type(state)
    for part in taken.parts():
        for _now, _mark, value in part:
            _note_names(value, scrubber)
        yield b""
    try:
        begin = codec.encoded(kind, state, scrubber)
    except TypeError as error:  # a bug of ours: no bundle is made of this journal, and the job is not affected
        log.warning("the state cannot be recorded: %s", error)
        return
    yield _line({"format": FORMAT, "version": VERSION, "outrider": outrider.__version__, "kind": kind.__name__})
    yield _line({"since": taken.since, "state": begin})
    yield from _entries(taken, scrubber, most)


def _entries(taken: Taken, scrubber: Scrubber, most: int) -> Iterator[bytes]:
    count, left_out = 0, 0
    for part in taken.parts():
        for now, mark, value in part:
            if mark == "=":  # a replay finds the changes of the state itself
                continue
            line = b"" if left_out else _entry(now, mark, value, scrubber)
            if not line or len(line) > most:  # without this event, those after it cannot be replayed
                left_out += 1
                continue
            count, most = count + 1, most - len(line)
            yield line
        yield b""
    yield _line({"end": count, **({"left_out": left_out} if left_out else {})})


def _entry(now: float, mark: str, value: object, scrubber: Scrubber) -> bytes:
    """The line of an entry; empty if it cannot be recorded."""
    try:
        return _line([now, mark, codec.encoded(Event if mark == ">" else Action, value, scrubber)])
    except TypeError as error:  # as above
        log.warning("the recording ends early: %s", error)
        return b""


def save(journal: Journal, path: Path) -> None:
    """Writes the recording to a new file and renames it to `path`, compressed. If the disk refuses, only a warning is
    logged: this must not change how the service ends."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with (
            open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
        ):
            packed.writelines(lines(journal.taken(), MOST_AT_THE_END))
        beside.replace(path)
    except OSError as refused:
        log.warning("could not write the recording, the service continues: %s", refused)
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _note_names(value: object, scrubber: Scrubber) -> None:
    """Notes the names that an earlier master's status may have too."""
    match value:
        case PodSeen(member, uid, node=node):
            names: tuple[str, ...] = (member, uid, node)
        case PodGone(member, uid):
            names = (member, uid)
        case PodsListed(pods, remains):
            for each in (*pods, *remains):
                _note_names(each, scrubber)
            return
        case SidecarSaid(_session, Hello() as hello):
            names = (hello.member, hello.uid, hello.address)
        case Began(saved=saved) if saved is not None:
            names = tuple(_names_in(mapping(saved.get("saved"))))
        case _:
            return
    for name in names:
        scrubber.noted(str(name))


def _names_in(saved: Mapping[str, Any]) -> Iterator[str]:
    """The members in a saved status, with their uids and addresses."""
    for key in ("members", "addresses", "silent", "checked"):
        for member, row in mapping(saved.get(key)).items():
            yield member
            yield from (each for each in row[: 2 if key == "addresses" else 1] if isinstance(each, str))


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
