"""The data position of a checkpoint, in one small file `.<name>.position.json` beside it (docs/contracts.md §10).

It is bound to the checkpoint's content, not to its name: a renamed checkpoint keeps its position, and one that another
program overwrites loses it. The file is written before the checkpoint is put in place, and keeps the entry of the save
before: whichever checkpoint a killed process leaves, its position is there.

A file that cannot be used raises `Unusable`; nothing here fails a save or a load.
"""

import hashlib
import json
import os

VERSION = 1
MARK = "data position"
SUFFIX = ".position.json"
LARGEST = 1 << 18
TAIL = 1 << 16
"""Number of bytes at the end of a checkpoint that identify it: a torch file ends with the checksums of its content."""
MOST_SEARCHED, MOST_KEPT = 64, 64
NUMBERS = ("length", "epoch", "consumed", "world", "batch", "nth", "seed")
FLAGS = ("shuffle", "drop_last")
KEY = ("length", "seed", "shuffle", "drop_last", "nth")
"""Names of the values that a sampler and its position must share."""


class Unusable(Exception):
    """A position file cannot be used; the message has its path and the reason."""


def key(position):
    return tuple(position[name] for name in KEY)


def place(checkpoint, volume=None):
    """The path of the position file: beside the checkpoint, or in the member's volume if one is given."""
    whole = os.path.abspath(checkpoint)
    if volume is None:
        return os.path.join(os.path.dirname(whole), "." + os.path.basename(whole) + SUFFIX)
    name = hashlib.sha256(os.fsencode(os.path.realpath(whole))).hexdigest()[:24]
    return os.path.join(volume, "positions", "." + name + SUFFIX)


def fingerprint(checkpoint):
    """A hash of the size and the last bytes of a file; of a folder (DCP) that of its `.metadata`."""
    if os.path.isdir(checkpoint):
        checkpoint = os.path.join(checkpoint, ".metadata")
    with open(checkpoint, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        return hashlib.sha256(b"%d " % size + file.read()).hexdigest()


# -- writing ----------------------------------------------------------------------------------------------------------
def write(file, of, positions):
    """`of` is the fingerprint of the checkpoint that will be put in place. Raises OSError."""
    saves = [{"of": of, "positions": positions}]
    saves += [save for save in _before(file) if save["of"] != of][:1]
    body = json.dumps({"saves": saves}, sort_keys=True)
    text = '{"outrider": "%s", "version": %d, "checksum": "%s", "body": %s}\n' % (MARK, VERSION, _sum(body), body)
    beside = "%s.%d" % (file, os.getpid())
    try:
        with open(beside, "w") as out:
            out.write(text)
        os.replace(beside, file)
        _listed.clear()
        _written.clear()
        _written[file] = saves
    except OSError:
        try:
            os.unlink(beside)
        except OSError:
            pass
        raise


_written = {}
"""Content that this process has written last, by its file."""


def _before(file):
    if file in _written:
        return _written[file]
    try:
        return _saves(file)
    except (Unusable, OSError):
        return []


def keep_few(folder):
    """Removes all but the newest files in the volume, which is memory of the user."""
    files = sorted(_files(folder), key=os.path.getmtime)
    for file in files[:-MOST_KEPT]:
        os.unlink(file)


def _sum(body):
    return hashlib.sha256(body.encode()).hexdigest()


# -- reading ----------------------------------------------------------------------------------------------------------
def read(checkpoint, volume=None):
    """(positions saved with exactly this checkpoint, their file), or ([], "") if there is no file."""
    file = place(checkpoint, volume)
    if not _files_now(os.path.dirname(file)):
        return [], ""
    of, wrong = fingerprint(checkpoint), None
    try:
        found = _of(file, of)
        if found is not None:
            return found, file
        wrong = Unusable("%s belongs to another save than %s" % (file, os.path.basename(checkpoint)))
    except FileNotFoundError:
        pass
    except Unusable as unusable:
        wrong = unusable
    renamed = _renamed(os.path.dirname(file), of)
    if renamed is not None:
        return renamed
    if wrong is not None:
        raise wrong
    return [], ""


def _renamed(folder, of):
    """Finds the position of a checkpoint that was saved under another name in its folder."""
    for file in sorted(_files(folder), key=os.path.getmtime, reverse=True)[:MOST_SEARCHED]:
        try:
            found = _of(file, of)
        except (Unusable, OSError):
            continue
        if found is not None:
            return found, file
    return None


_listed = {}
"""State of the last searched folder, since a script may load its data by torch.load, one file per sample."""


def _files_now(folder):
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return []
    if (folder, changed) not in _listed:
        _listed.clear()
        _listed[folder, changed] = _files(folder)
    return _listed[folder, changed]


def _files(folder):
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.startswith(".") and name.endswith(SUFFIX)]


def _of(file, of):
    return next((save["positions"] for save in _saves(file) if save["of"] == of), None)


def _saves(file):
    """The entries of the file, after all of it is checked."""
    document = _document(file)
    version = document.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise Unusable("%s has version %r; these hooks read up to version %d" % (file, version, VERSION))
    body = document.get("body")
    if document.get("checksum") != _sum(json.dumps(body, sort_keys=True)):
        raise Unusable("%s is damaged: its checksum does not match its content" % file)
    saves = body.get("saves") if isinstance(body, dict) else None
    if not isinstance(saves, list) or not all(_is_save(save) for save in saves):
        raise Unusable("%s does not describe a position" % file)
    return saves


def _document(file):
    try:
        with open(file, "rb") as source:
            data = source.read(LARGEST + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable("%s cannot be read: %s" % (file, error.strerror or error))
    try:
        document = json.loads(data.decode()) if len(data) <= LARGEST else None
    except ValueError:
        raise Unusable("%s is damaged: it is not a complete JSON document" % file)
    if not isinstance(document, dict) or document.get("outrider") != MARK:
        raise Unusable("%s is not a data position of outrider" % file)
    return document


def _is_save(save):
    known = isinstance(save, dict) and isinstance(save.get("of"), str) and isinstance(save.get("positions"), list)
    return known and all(is_position(each) for each in save["positions"])


def is_position(each):
    if not isinstance(each, dict) or not all(isinstance(each.get(name), bool) for name in FLAGS):
        return False
    if not all(isinstance(each.get(name), int) and not isinstance(each.get(name), bool) for name in NUMBERS):
        return False
    return 0 <= each["consumed"] <= each["length"] and each["world"] > 0 and each["epoch"] >= 0
