"""Writes and reads the archive of a bundle, a tar.gz.

The same contents make the same bytes. A reader takes the members into memory, never onto the disk, and only regular
files whose plain names and sizes the manifest has.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import outrider
from outrider.cli.errors import UserError

FORMAT, VERSION = "outrider-bundle", 1
MANIFEST = "manifest.json"
RECORDING, FAILED, STATUS, EVENTS, SPEC, COMMAND, VERSIONS = (
    "recording.jsonl", "recording-failed.jsonl", "status.json", "events.jsonl", "spec.json", "command.json",
    "versions.json",
)  # fmt: skip
ELASTICJOB = "elasticjob.json"
MOST_BYTES = 128 << 20
"""The most bytes of a bundle, unpacked."""
MOST_PACKED = 64 << 20
MOST_MEMBERS = 500
NAME = re.compile(r"[a-z0-9][\w.-]{0,99}(/[\w.-]{1,100}){0,6}\Z", re.ASCII)


class WrongBundle(UserError):
    """The file is not a bundle that this version can read."""


def packed(members: Mapping[str, bytes], about: Mapping[str, Any]) -> bytes:
    """The archive. `about` is what the manifest says besides the format, the version and the members."""
    listed = {name: {"bytes": len(body), "sha256": _digest(body)} for name, body in sorted(members.items())}
    head = {"format": FORMAT, "version": VERSION, "outrider": outrider.__version__, **about, "members": listed}
    files = {MANIFEST: json.dumps(head, indent=2).encode() + b"\n", **dict(sorted(members.items()))}
    into = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=into, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(body), 0o600
            archive.addfile(entry, io.BytesIO(body))
    return into.getvalue()


def write(path: Path, content: bytes, flag: str) -> None:
    """Writes a new file, which only the user can read. Raises UserError."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise UserError(f"{flag} {path}: must be a new file; this one exists") from None
    except OSError as refused:
        raise UserError(f"{flag} {path}: must be writable ({refused.strerror})") from refused


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the other members. Raises WrongBundle, whatever the file is."""
    try:
        if path.stat().st_size > MOST_PACKED:
            raise WrongBundle(f"{path}: must be a bundle of at most {MOST_PACKED >> 20} MiB")
        files = _files(path)
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, ValueError) as broken:
        raise WrongBundle(f"{path}: must be a whole archive that outrider bundle has made: {broken}") from broken
    except OSError as refused:
        raise WrongBundle(f"{path} cannot be read: {refused.strerror or refused}") from refused
    head = _manifest(path, files.pop(MANIFEST, b""))
    listed = head["members"]
    for name in sorted(listed.keys() | files.keys()):
        if name not in files or name not in listed or listed[name].get("sha256") != _digest(files[name]):
            raise WrongBundle(f"{path}: {name} is missing or was changed after the bundle was made")
    return head, files


def _files(path: Path) -> dict[str, bytes]:
    """All members. The unpacked stream is read up to its limit and no further."""
    files: dict[str, bytes] = {}
    with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as stream:
        bounded = _Bounded(stream)
        with tarfile.open(mode="r|", fileobj=bounded) as archive:
            for entry in archive:
                is_plain = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse()
                if not is_plain or not NAME.match(entry.name) or ".." in entry.name or entry.name in files:
                    raise ValueError(f"it has the member {entry.name[:100]!r}, which no bundle has")
                if len(files) >= MOST_MEMBERS:
                    raise ValueError(f"it has more than {MOST_MEMBERS} members")
                if entry.size > MOST_BYTES:
                    raise ValueError(f"{entry.name} has more than {MOST_BYTES >> 20} MiB")
                file = archive.extractfile(entry)
                body = b"" if file is None else file.read()
                if len(body) != entry.size:
                    raise ValueError(f"{entry.name} is cut off")
                files[entry.name] = body
        while bounded.read(1 << 20):  # what is left: the check of the gzip stream is at its end
            pass
    return files


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after MOST_BYTES, as a zip bomb does."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream, self._left = stream, MOST_BYTES

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size if size >= 0 else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB unpacked")
        return piece


def _manifest(path: Path, body: bytes) -> dict[str, Any]:
    try:
        head = json.loads(body)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise WrongBundle(f"{path}: must be a bundle: it has no {MANIFEST} of one")
    if head.get("version") != VERSION:
        raise WrongBundle(
            f"{path} is a bundle of format {head.get('version')!r}, and this Outrider reads format {VERSION}"
        )
    listed = head.get("members")
    if not isinstance(listed, dict) or not all(isinstance(each, dict) for each in listed.values()):
        raise WrongBundle(f"{path}: must be a bundle: its {MANIFEST} lists no members")
    return head


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
