"""The saved state of a planned move on the user's volume: a torch file, and its record.

    <OUTRIDER_MIGRATION_DIR>/state-<step>-<n>.pth   the registered objects
    <OUTRIDER_MIGRATION_DIR>/migration.json         the valid file, its size and checksum, the history

The file is written completely, then the record is replaced, then older files are removed. So the record names a
complete file, wherever a write is interrupted. A file that differs from its record (truncated, foreign, of a newer
version) is not used.
"""

import json
import os
import re
import time
import zlib

VERSION = 1
RECORD = "migration.json"
MOST_HISTORY = 100
CHUNK = 1 << 22
NAME = re.compile(r"state-\d+-\d+\.pth")


class Unusable(Exception):
    """A saved state exists and cannot be used; the message has the reason."""


def folder_of(environ):
    """The directory of this job's saved state, or "" if the job names none."""
    return environ.get("OUTRIDER_MIGRATION_DIR", "")


def read(folder):
    """The record, or None if nothing was ever written here. Raises Unusable."""
    path = os.path.join(folder, RECORD)
    try:
        with open(path) as file:
            record = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Unusable("%s cannot be read: %s" % (path, error))
    if not isinstance(record, dict) or not isinstance(record.get("version"), int):
        raise Unusable("%s is not a record of a saved state" % path)
    if record["version"] > VERSION:
        raise Unusable("%s has version %d, newer than the known version %d" % (path, record["version"], VERSION))
    if not _is_sound(record):
        raise Unusable("%s is not a record of a saved state: its names or its step are invalid" % path)
    return record


def _is_sound(record):
    """Checks the fields that are used without a further check."""
    names, step = record.get("names", []), record.get("step", 0)
    return isinstance(names, list) and all(isinstance(name, str) for name in names) and isinstance(step, int)


def checked(folder, record):
    """The path of the valid state, or None if none was saved yet. Raises Unusable if the file differs from its
    record."""
    name = record.get("file")
    if name is None:
        return None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Unusable("%s names no file of a saved state: %r" % (os.path.join(folder, RECORD), name))
    path = os.path.join(folder, name)
    try:
        size = os.path.getsize(path)
        if size != record.get("bytes"):
            raise Unusable("%s has %d bytes instead of %s" % (path, size, record.get("bytes")))
        if checksum(path) != record.get("crc32"):
            raise Unusable("%s is damaged: its checksum differs from the record" % path)
    except OSError as error:
        raise Unusable("%s cannot be read: %s" % (path, error))
    return path


def checksum(path):
    """CRC-32 of the whole file."""
    found = 0
    with open(path, "rb") as file:
        while True:
            chunk = file.read(CHUNK)
            if not chunk:
                return found
            found = zlib.crc32(chunk, found)


def next_path(folder, step):
    taken = [int(name.split("-")[2][: -len(".pth")]) for name in _names(folder)]
    return os.path.join(folder, "state-%d-%d.pth" % (step, max(taken, default=0) + 1))


def commit(folder, path, about):
    """Makes this file the valid one, and removes older files."""
    size, found = os.path.getsize(path), checksum(path)
    _rewrite(folder, dict(about, file=os.path.basename(path), bytes=size, crc32=found), dict(about, what="saved"))
    for name in _names(folder):
        if name != os.path.basename(path):
            try:
                os.remove(os.path.join(folder, name))
            except OSError:  # the file stays, and is not used
                pass


def note(folder, what, **about):
    """Adds a line to the record's history. An unusable record, perhaps of a newer version, stays as it is."""
    try:
        read(folder)
    except Unusable:
        return
    _rewrite(folder, {}, dict(about, what=what))


def _rewrite(folder, fields, happened):
    os.makedirs(folder, exist_ok=True)
    try:
        record = read(folder) or {}
    except Unusable:  # the complete state replaces it
        record = {}
    history = record.get("history")
    history = history if isinstance(history, list) else []
    happened = dict(happened, at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    record = dict(record, **fields)
    record.update(version=VERSION, history=(history + [happened])[-MOST_HISTORY:])
    beside = os.path.join(folder, ".%s.%d" % (RECORD, os.getpid()))
    try:
        with open(beside, "w") as file:
            json.dump(record, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, os.path.join(folder, RECORD))
    except OSError:  # the volume is full
        if os.path.exists(beside):
            os.remove(beside)
        raise


def _names(folder):
    try:
        return [name for name in os.listdir(folder) if NAME.fullmatch(name)]
    except OSError:
        return []
