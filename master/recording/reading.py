"""Reads a recording, which is untrusted: a wrong one is refused in one sentence, and none of it is run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import outrider
from outrider.master.core.events import Event
from outrider.master.core.job_kinds import Job
from outrider.master.recording import codec
from outrider.master.recording.recorder import FORMAT, JOBS, VERSION
from outrider.wire import reader

LONGEST_LINE = 64 << 20


class WrongRecording(Exception):
    """This version cannot replay it; the message says why, in a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event with the actions that followed when it was recorded."""

    number: int
    """From 1."""
    at: float
    event: Event
    actions: list[Any]
    """The recorded actions, as JSON."""


@dataclass(frozen=True, slots=True)
class Recording:
    outrider: str
    since: float
    state: Job
    steps: list[Step]
    left_out: int
    """The number of entries that were left out at the end."""


def read(raw: Iterable[bytes], *, any_version: bool = False) -> Recording:
    """The recording in these lines. Raises WrongRecording."""
    found = _parsed(raw)
    try:
        return _recording(found, any_version)
    except reader.Wrong as wrong:
        raise WrongRecording(f"the recording has an invalid value: {wrong}") from None
    except (TypeError, RecursionError, OverflowError) as error:
        raise WrongRecording(f"the recording has an invalid value: {error}") from None


def _parsed(raw: Iterable[bytes]) -> Iterator[Any]:
    for number, line in enumerate(raw, 1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            raise WrongRecording(
                f"line {number} of the recording is not JSON: the file was cut off or changed"
            ) from None


def _recording(found: Iterator[Any], any_version: bool) -> Recording:
    head = _map(next(found, None))
    if head.get("format") != FORMAT:
        raise WrongRecording("it does not begin like a recording of Outrider")
    if head.get("version") != VERSION:
        raise WrongRecording(
            f"its format is version {head.get('version')!r}, and this Outrider reads version {VERSION}"
        )
    made_by = head.get("outrider")
    if made_by != outrider.__version__ and not any_version:
        raise WrongRecording(f"Outrider {made_by} made it, and this is {outrider.__version__}: replay it with that "
                             "version, or with --any-version if this one shall decide")  # fmt: skip
    if head.get("kind") not in JOBS:
        raise WrongRecording(f"its job is of the unknown kind {reader.quoted(head.get('kind'))}")
    begin = _map(next(found, None))
    state = codec.decoded(JOBS[head["kind"]], begin.get("state"))
    steps, left_out = _steps(found)
    return Recording(str(made_by), float(begin.get("since") or 0.0), state, steps, left_out)


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongRecording("the recording was cut off at its beginning")
    return value


def _steps(found: Iterator[Any]) -> tuple[list[Step], int]:
    steps: list[Step] = []
    count = 0
    for line in found:
        if isinstance(line, dict):
            if line.get("end") != count:
                raise WrongRecording(f"the recording ends after {count} entries, but should have {line.get('end')!r}")
            left_out = line.get("left_out", 0)
            return steps, left_out if type(left_out) is int else 0
        if type(line) is not list or len(line) != 3 or type(line[0]) not in (int, float):
            raise WrongRecording(f"entry {count + 1} of the recording is not [time, mark, value]")
        now, mark, value = line
        count += 1
        if mark == ">":
            steps.append(Step(len(steps) + 1, float(now), codec.decoded(Event, value), []))
        elif steps:
            steps[-1].actions.append(value)
    raise WrongRecording(f"the recording was cut off after {count} entries")
