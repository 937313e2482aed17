"""Detects a save that a newer generation has overtaken by putting its own file at the same path.

A member without network may still reach the storage, and its generation ends before the member knows it. So each file
that replaces another by a rename has an extended attribute with its generation; the file's bytes do not change. On a
file system without extended attributes no save is refused. Neither is a save of the same generation, by any rank, or a
save over a file that was there when the save began.
"""

import os

NAME = "user.outrider.generation"
WHY = (
    "the save to %s is dropped: a newer generation of this job has saved there meanwhile, and the generation of this "
    "process has ended"
)


class Overtaken(Exception):
    """A newer generation's file is at the path and stays there; the message is for the user."""


class Save:
    """One save, from its begin. `generation`: a number that grows with each generation; 0 for a process without a
    job."""

    def __init__(self, target, generation):
        self.target, self.generation = target, generation
        self.job = os.environ.get("OUTRIDER_JOB", "")
        self.found = _identity(target)

    def mark(self, path):
        """Marks a file that will replace the target, but not one that is overwritten in place."""
        if self.generation and path != self.target:
            try:
                os.setxattr(path, NAME, ("%d %s" % (self.generation, self.job)).encode("utf-8", "surrogateescape"))
            except (OSError, AttributeError):  # the file system has no extended attributes
                pass

    def check(self):
        """Raises Overtaken."""
        now = _identity(self.target)
        if self.generation and now is not None and now != self.found and self._is_of_newer():
            raise Overtaken(WHY % os.path.abspath(self.target))

    def _is_of_newer(self):
        try:
            text = os.getxattr(self.target, NAME).decode("utf-8", "surrogateescape")
        except (OSError, AttributeError):
            return False
        generation, _, job = text.partition(" ")
        return generation.isdigit() and job == self.job and int(generation) > self.generation


def _identity(path):
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
