"""Identifies the save at the checkpoint path, by a small file `.<name>.version.json` beside it (docs/contracts.md §12).

An entry is bound to the file's content (`data.position_file.fingerprint`), so a file from another program has no entry,
whatever its name and time. The version file is written before the checkpoint replaces the old one, and keeps the old
one's entry too: whichever file a killed process leaves, its entry is there.
"""

import json
import os
import stat

from ..data import position_file

MARK = "checkpoint version"
VERSION = 1
MOST = 1 << 62
"""A number that no save reaches: those in memory have 63 bits."""


def place(path):
    return os.path.join(os.path.dirname(path), "." + os.path.basename(path) + ".version.json")


def write(path, written, save):
    """Records that the complete file at `written` will be at `path`. `save`: (generation, number). Raises OSError."""
    entry = {"of": position_file.fingerprint(written), "generation": save[0], "number": save[1]}
    before = [each for each in _saves(path) if each["of"] != entry["of"]]
    there = _fingerprint(path)
    saves = [entry, *before[:1], *(each for each in before[1:] if each["of"] == there)]
    beside = "%s.%d" % (place(path), os.getpid())
    try:
        with open(beside, "w") as out:
            json.dump({"outrider": MARK, "version": VERSION, "saves": saves}, out)
        os.replace(beside, place(path))
    except OSError:
        try:
            os.unlink(beside)
        except OSError:
            pass
        raise


def read(path):
    """(fingerprint of the file, its (generation, number)); the pair is None if this job did not write the file. Raises
    OSError."""
    of = position_file.fingerprint(path)
    return of, next(((each["generation"], each["number"]) for each in _saves(path) if each["of"] == of), None)


def _fingerprint(path):
    try:
        return position_file.fingerprint(path)
    except OSError:
        return ""


def newest(path):
    """The greatest known number of a save here."""
    return max((each["number"] for each in _saves(path)), default=0)


def _saves(path):
    """The entries. An unreadable file counts as absent: the checkpoint is then another program's."""
    try:
        with open(place(path), "rb") as source:
            document = json.loads(source.read(1 << 16).decode())
        saves = document["saves"] if document["outrider"] == MARK and document["version"] == VERSION else []
        return [each for each in saves if _is_save(each)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _is_save(each):
    numbers = (each["generation"], each["number"])
    return isinstance(each["of"], str) and all(isinstance(number, int) and 0 <= number < MOST for number in numbers)


def begun_from():
    """(generation, number) of the save in memory that this generation resumes from, or None."""
    number, _, generation = os.environ.get("OUTRIDER_CHECKPOINT_FROM", "").partition(":")
    term, _, count = generation.partition(".")
    if not (number.isdigit() and term.isdigit() and count.isdigit()):
        return None
    return int(term) << 32 | int(count), int(number)


def stamp(path):
    """A value that changes when another file is at the path; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
