"""The log of a service: JSON lines for programs, plain or coloured text for people.

The core gives reasons and the shell logs them: one line per announcement, none per report. Both shapes have the same
fields. Lines go to stderr.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO

COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}
RESET = "\x1b[0m"
DIM = "\x1b[2m"


def set_up(shape: str, service: str, stream: IO[str] | None = None) -> None:
    """Send all log records of this process to `stream` (default: stderr); `shape` is `json` or `text`."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(service) if shape == "json" else Text(service, colour=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def announce(
    log: logging.Logger, kind: str, reason: str, severity: str = "normal", detail: Mapping[str, str] | None = None
) -> None:
    """Log one announcement of the core; `severity` is `normal` or `warning`."""
    level = logging.WARNING if severity == "warning" else logging.INFO
    log.log(level, "%s", reason, extra={"kind": kind, "detail": dict(detail or {})})


TURNING = {each: f"\\u{each:04x}" for each in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}
"""Characters that change the direction of the text after them and so could disguise a line; they are escaped."""


class JsonLines(logging.Formatter):
    """One object per line: time, level, service, kind, message, and the details as separate fields."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = dict(getattr(record, "detail", {}))
        entry |= {
            "time": _moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "service": self._service,
            "kind": getattr(record, "kind", record.name),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False).translate(TURNING)


class Text(logging.Formatter):
    """`12:34:56.789 sidecar Kind: message (key=value …)`, coloured by level on a terminal."""

    def __init__(self, service: str, colour: bool) -> None:
        super().__init__()
        self._service = service
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        moment = _moment(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        detail = " ".join(f"{key}={value}" for key, value in getattr(record, "detail", {}).items())
        kind = getattr(record, "kind", record.name)
        message = f"{kind}: {record.getMessage()}" + (f" ({detail})" if detail else "")
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        if not self._colour:
            return f"{moment} {self._service} {message}"
        colour = COLOURS.get(record.levelname, "")
        return f"{DIM}{moment} {self._service}{RESET} {colour}{message}{RESET if colour else ''}"


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)
