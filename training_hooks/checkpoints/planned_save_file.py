"""The saved state of a planned move on the user's own volume. It is one file of torch's, and a record that makes it
count.

    <OUTRIDER_MIGRATION_DIR>/state-<step>-<n>.pth   what the script registered
    <OUTRIDER_MIGRATION_DIR>/migration.json         which file counts, its size and checksum, what happened

The file is written first and whole, then the record is replaced, then older files go: whatever is cut short, the record
names a file that is complete. A file that is not as its record says (truncated, another's, of a newer version) is none.
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
    """There is a saved state, and it cannot be used; the sentence says why."""


def folder_of(environ):
    """Where the state of this job lies, "" where the job names no directory."""
    return environ.get("OUTRIDER_MIGRATION_DIR", "")


def read(folder):
    """The record, None where nothing was ever written here. Raises Unusable."""
    path = os.path.join(folder, RECORD)
    try:
        with open(path) as file:
            record = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Unusable("%s cannot be read: %s" % (path, error))
    if not isinstance(record, dict) or not isinstance(record.get("version"), int):
        raise Unusable("%s is no record of a saved state" % path)
    if record["version"] > VERSION:
        raise Unusable("%s is of version %d, and %d is the newest known here" % (path, record["version"], VERSION))
    if not _is_sound(record):
        raise Unusable("%s is no record of a saved state: its names or its step are none" % path)
    return record


def _is_sound(record):
    """What of it is used without another look."""
    names, step = record.get("names", []), record.get("step", 0)
    return isinstance(names, list) and all(isinstance(name, str) for name in names) and isinstance(step, int)


def checked(folder, record):
    """The path of the state that counts, None where none was saved yet. Raises Unusable where it is not as written."""
    name = record.get("file")
    if name is None:
        return None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Unusable("%s names no file of a saved state: %r" % (os.path.join(folder, RECORD), name))
    path = os.path.join(folder, name)
    try:
        size = os.path.getsize(path)
        if size != record.get("bytes"):
            raise Unusable("%s has %d bytes, and %s were written" % (path, size, record.get("bytes")))
        if checksum(path) != record.get("crc32"):
            raise Unusable("%s is damaged: its checksum is not the one that was written" % path)
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
    """From now on this file counts, and the older ones go."""
    size, found = os.path.getsize(path), checksum(path)
    _rewrite(folder, dict(about, file=os.path.basename(path), bytes=size, crc32=found), dict(about, what="saved"))
    for name in _names(folder):
        if name != os.path.basename(path):
            try:
                os.remove(os.path.join(folder, name))
            except OSError:  # it lies there, and counts for nothing
                pass


def note(folder, what, **about):
    """One line of the record's history. A record that cannot be used, perhaps a newer version's, stays as it is."""
    try:
        read(folder)
    except Unusable:
        return
    _rewrite(folder, {}, dict(about, what=what))


def _rewrite(folder, fields, happened):
    os.makedirs(folder, exist_ok=True)
    try:
        record = read(folder) or {}
    except Unusable:  # a state that is complete takes its place
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
    except OSError:  # a full volume
        if os.path.exists(beside):
            os.remove(beside)
        raise


def _names(folder):
    try:
        return [name for name in os.listdir(folder) if NAME.fullmatch(name)]
    except OSError:
        return []
