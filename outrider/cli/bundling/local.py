"""The members of the bundle of a local job, running or ended."""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import platform
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import outrider
from outrider.cli import job_dirs
from outrider.cli.bundling import archive, command_line, documents
from outrider.cli.client import Master
from outrider.cli.documents import saved_events, status_of
from outrider.cli.errors import UserError
from outrider.cli.log_streams import streams
from outrider.master.core.spec import JobSpec
from outrider.master.recording import codec, recorder
from outrider.master.recording.scrubbing import Scrubber
from outrider.master.service import spec_json
from outrider.runtime.settings import WrongSetting

PACKAGES = (
    "outrider", "torch", "tensorflow", "tensorflow-cpu", "numpy", "accelerate", "deepspeed", "lightning",
    "transformers", "pyzmq", "msgpack", "uvloop", "aiohttp", "click",
)  # fmt: skip
"""The packages whose versions a bundle has."""
EACH_LOG, ALL_LOGS = 1 << 20, 24 << 20
"""The most bytes of one stream of a rank's output, the newest ones, and of all streams together."""


class Contents:
    """The members of a bundle, and what is missing in it, as sentences."""

    def __init__(self, job: str) -> None:
        self.job, self.scrubber = job, Scrubber()
        self.members: dict[str, bytes] = {}
        self.left_out: list[str] = []

    def add(self, name: str, value: Any) -> None:
        self.members[name] = json.dumps(value, indent=1).encode() + b"\n"

    def add_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        self.members[archive.EVENTS] = b"".join(json.dumps(each).encode() + b"\n" for each in events)

    def add_recording(self, content: bytes, missing: str) -> None:
        if content:
            self.members[archive.RECORDING] = content
        else:
            self.left_out.append(missing)

    def note_earlier(self, generation: object) -> None:
        """Names the masters before the one of a generation such as `3.1`: a recording is only of the last one."""
        term = str(generation).partition(".")[0]
        if archive.RECORDING in self.members and term.isdecimal() and int(term) > 1:
            which = "master 1" if term == "2" else f"masters 1 to {int(term) - 1}"
            self.left_out.append(f"no recording of {which}: each master begins a new one")


def contents(job: str, with_logs: bool) -> Contents:
    """Everything that is there. A part that cannot be read is left out, with a sentence about it."""
    made, folder = Contents(job), job_dirs.job_folder(job)
    _add_recording(made, folder)
    if body := _packed(folder / recorder.FAILED):
        made.members[archive.FAILED] = body
    try:
        status = status_of(job)
        made.add(archive.STATUS, documents.status(status, made.scrubber))
        made.note_earlier(status.get("generation"))
    except UserError as missing:
        made.left_out.append(missing.message)
    made.add_events(documents.event(line, made.scrubber, with_reason=with_logs) for line in saved_events(job))
    _add_spec(made, folder)
    _add_command(made, folder)
    made.add(archive.VERSIONS, versions())
    if with_logs:
        _add_logs(made, folder)
    return made


def _add_recording(made: Contents, folder: Path) -> None:
    missing = f"{made.job} has no recording: its master was killed, or is of an earlier version"
    if job_dirs.is_running(made.job):
        try:
            return made.add_recording(Master(folder).recording(recorder.MOST_BYTES * 2), missing)
        except UserError as away:
            missing = f"no recording: {away.message}"
    made.add_recording(_packed(folder / recorder.FILE), missing)


def _packed(path: Path) -> bytes:
    """The content of a compressed recording; empty if there is none, or it was cut off."""
    try:
        with gzip.open(path) as file:
            return file.read(recorder.MOST_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""


def _add_spec(made: Contents, folder: Path) -> None:
    try:
        spec = spec_json.spec_of(json.loads((folder / "spec.json").read_bytes()))
    except (OSError, ValueError, WrongSetting):
        made.left_out.append("the job's spec cannot be read")
    else:
        made.add(archive.SPEC, codec.encoded(JobSpec, spec, made.scrubber))


def _add_command(made: Contents, folder: Path) -> None:
    """What `outrider run` has noted, shown once more by the rules of this version."""
    try:
        found = json.loads((folder / command_line.FILE).read_bytes())
        argv, names = map(str, found["argv"]), map(str, found["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        made.left_out.append("the job's command is not known")
    else:
        made.add(archive.COMMAND, {"argv": command_line.shown(argv), "environment": command_line.names(names)})


def versions() -> dict[str, Any]:
    """The versions of Outrider, Python, the kernel and some packages on this machine."""
    return {
        "outrider": outrider.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": dict(_packages()),
    }


def _packages() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _add_logs(made: Contents, folder: Path) -> None:
    left = ALL_LOGS
    for stream in reversed(streams(folder / "logs")):  # the newest generation first
        body = _end_of(stream.path, min(EACH_LOG, left))
        place = [part for part in (stream.member, str(stream.generation), str(stream.rank), stream.path.name) if part]
        if body and archive.NAME.match(name := "/".join(("logs", *place))):
            made.members[name], left = body, left - len(body)
    if body := _end_of(folder / "master.log", EACH_LOG):
        made.members["logs/master.log"] = body
    if left <= 0:
        made.left_out.append(f"of the output only the newest {ALL_LOGS >> 20} MiB")


def _end_of(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            return file.read(most)
    except OSError:
        return b""
