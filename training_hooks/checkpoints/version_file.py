"""Which save the file at the marked path is: one small file `.<name>.version.json` beside it (docs/contracts.md §12).

It is bound to the file's bytes (`data.position_file.fingerprint`), so a file that somebody else has put there is none
of ours, whatever its name and time. It is written before the checkpoint takes its place, and has the entry of the file
that is there as well: whichever of the two a killed process leaves, its entry is there.
"""

import json
import os
import stat

from ..data import position_file

MARK = "checkpoint version"
VERSION = 1
MOST = 1 << 62
"""No save of ours has such a number: those in memory have 63 bits."""


def place(path):
    return os.path.join(os.path.dirname(path), "." + os.path.basename(path) + ".version.json")


def write(path, written, save):
    """The file that will be at `path` is complete at `written`. `save`: (generation, number). Raises OSError."""
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
    """(the fingerprint of the file that is there, its (generation, number)); None where it is none of ours. Raises
    OSError."""
    of = position_file.fingerprint(path)
    return of, next(((each["generation"], each["number"]) for each in _saves(path) if each["of"] == of), None)


def _fingerprint(path):
    try:
        return position_file.fingerprint(path)
    except OSError:
        return ""


def newest(path):
    """The greatest number that was ever given here, as far as is known."""
    return max((each["number"] for each in _saves(path)), default=0)


def _saves(path):
    """What cannot be understood is as if it were not there: the checkpoint is somebody else's then."""
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
    """(generation, number) of the save that this generation begins from, as far as memory is concerned; None: of
    none."""
    number, _, generation = os.environ.get("OUTRIDER_CHECKPOINT_FROM", "").partition(":")
    term, _, count = generation.partition(".")
    if not (number.isdigit() and term.isdigit() and count.isdigit()):
        return None
    return int(term) << 32 | int(count), int(number)


def stamp(path):
    """Another one: another file. None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
