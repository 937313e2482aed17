"""At which step a checkpoint was saved, known by its name and by its bytes.

The name changes: scripts save to `x.tmp` and rename that to `x` (`renames` follows them). A copy, a link, and whatever
another program or member has made of the file are known by its fingerprint: its size and a hash of its first and last
bytes. Device and inode are not asked: they differ on two members' mounts, and are used again for other files.
"""

import collections
import hashlib
import json
import os
import re

HEAD, TAIL = 1 << 12, 1 << 16
"""Bytes that are read of a file. One of torch's ends with the checksums of all that is in it."""
MOST = 256
"""Saves of this process that may still be renamed, and fingerprints."""
MOST_EARLY = 64
DIGITS = re.compile(r"\d+")
FILE = "known.json"
"""In the member's volume, for ranks that a launcher starts."""


def fingerprint(path, sizes=None):
    """Of a file, or of a DCP folder by its `.metadata`; "" where it cannot be read, or has none of these sizes."""
    try:
        if os.path.isdir(path):
            path = os.path.join(path, ".metadata")
        if sizes is not None and os.stat(path).st_size not in sizes:
            return ""
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            found = hashlib.sha256(file.read(HEAD))
            file.seek(max(0, size - TAIL))
            found.update(file.read(TAIL))
    except (OSError, ValueError):
        return ""
    return "%d-%s" % (size, found.hexdigest()[:24])


class Known:
    """`steps` by real path; `prints` by fingerprint, 0 where saves of two steps have the same: a file that never
    changes, or a DCP folder of a torch before 2.3."""

    def __init__(self, saves=(), prints=()):
        self.steps = {os.path.realpath(path): step for path, step in saves}
        self.prints = dict(prints)
        self._sizes = None
        """Of files of which the fingerprint says something; None: to be worked out."""
        self.own = collections.OrderedDict()
        """What was told of each save of this process, by its absolute path."""

    def saved(self, path, step, prints=()):
        self.steps[os.path.realpath(path)] = step
        self._sizes = None
        for each in prints:
            self.prints[each] = step if self.prints.get(each, step) == step else 0
            if len(self.prints) > MOST:
                del self.prints[next(iter(self.prints))]

    def note(self, path, message):
        self.own.pop(path, None)
        self.own[path] = message
        if len(self.own) > MOST:
            self.own.popitem(last=False)

    def step_of(self, path):
        """0 where nothing is known of it. Its bytes go before its name."""
        if not self.steps and not self.prints:
            return 0
        if self._sizes is None:
            self._sizes = {int(each.partition("-")[0]) for each, step in self.prints.items() if step}
        by_bytes = self.prints.get(fingerprint(path, self._sizes), 0) if self._sizes else 0
        if by_bytes:
            return by_bytes
        whole = os.path.realpath(path)
        return self.steps.get(whole) or self.steps.get(os.path.dirname(whole), 0)

    def renamed(self, old, new):
        """[(message as it was told, new path)] of this process's saves that have moved with it; absolute paths."""
        moved = []
        for path in [each for each in self.own if each == old or each.startswith(old + os.sep)]:
            message, to = self.own.pop(path), new + path[len(old) :]
            step = self.steps.pop(os.path.realpath(path), None)
            if step is not None:
                self.steps[os.path.realpath(to)] = step
            moved.append((message, to))
        return moved


class Series:
    """Which paths belong to a series of checkpoints in this process."""

    def __init__(self):
        self.shapes = set()

    def continues(self, path, existed):
        shape = DIGITS.sub("#", os.path.abspath(path))
        known = shape in self.shapes
        self.shapes.add(shape)
        return existed or known


early = []
"""What a process has loaded that nobody has known to be a rank yet."""


def note_early(path):
    if len(early) < MOST_EARLY:
        early.append(path)


# -- for ranks that a launcher starts ----------------------------------------------------------------------------------
def write(volume, saves, prints):
    """Raises nothing: a rank that finds no file counts from 0."""
    path = os.path.join(volume, FILE)
    try:
        with open(path + ".new", "w") as file:
            json.dump({"saves": list(saves), "prints": list(prints)}, file)
        os.replace(path + ".new", path)
    except OSError:
        pass


def read(volume):
    try:
        with open(os.path.join(volume, FILE)) as file:
            told = json.load(file)
        return Known(told["saves"], told["prints"])
    except (OSError, ValueError, KeyError, TypeError):
        return Known()
