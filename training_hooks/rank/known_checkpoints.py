"""The step at which a checkpoint was saved, found by its name or by its content.

The name changes: scripts save to `x.tmp` and rename that to `x` (`renames` follows them). A copy, a link, or a file
that another program or member has made of it is found by its fingerprint: its size and a hash of its first and last
bytes. Device and inode are not used: they differ between the mounts of two members, and are reused for other files.
"""

import collections
import hashlib
import json
import os
import re

HEAD, TAIL = 1 << 12, 1 << 16
"""Number of bytes read at each end of a file. A file of torch ends with the checksums of its whole content."""
MOST = 256
"""Number of saves of this process that may still be renamed, and number of fingerprints."""
MOST_EARLY = 64
DIGITS = re.compile(r"\d+")
FILE = "known.json"
"""Name of the file in the member's volume that lists the saves for ranks started by a launcher."""


def fingerprint(path, sizes=None):
    """Fingerprint of a file, or of a DCP folder by its `.metadata`; "" if it cannot be read or has none of `sizes`."""
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
    """Steps by real path (`steps`) and by fingerprint (`prints`). A fingerprint that two steps share has step 0: a file
    that never changes, or a DCP folder of a torch before 2.3."""

    def __init__(self, saves=(), prints=()):
        self.steps = {os.path.realpath(path): step for path, step in saves}
        self.prints = dict(prints)
        self._sizes = None
        """Sizes of the files whose fingerprint identifies a step; None if they must be computed."""
        self.own = collections.OrderedDict()
        """Messages reported for the saves of this process, by absolute path."""

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
        """The step of a checkpoint, or 0 if it is unknown. The content has precedence over the name."""
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
        """Follows a rename: [(reported message, new path)] for each moved save of this process; all paths absolute."""
        moved = []
        for path in [each for each in self.own if each == old or each.startswith(old + os.sep)]:
            message, to = self.own.pop(path), new + path[len(old) :]
            step = self.steps.pop(os.path.realpath(path), None)
            if step is not None:
                self.steps[os.path.realpath(to)] = step
            moved.append((message, to))
        return moved


class Series:
    """Decides which paths of this process belong to a series of checkpoints."""

    def __init__(self):
        self.shapes = set()

    def continues(self, path, existed):
        shape = DIGITS.sub("#", os.path.abspath(path))
        known = shape in self.shapes
        self.shapes.add(shape)
        return existed or known


early = []
"""Paths loaded before this process is known to be a rank."""


def note_early(path):
    if len(early) < MOST_EARLY:
        early.append(path)


# -- for ranks that a launcher starts ----------------------------------------------------------------------------------
def write(volume, saves, prints):
    """Writes the list of known saves. It raises nothing: a rank that finds no file counts from step 0."""
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
            document = json.load(file)
        return Known(document["saves"], document["prints"])
    except (OSError, ValueError, KeyError, TypeError):
        return Known()
