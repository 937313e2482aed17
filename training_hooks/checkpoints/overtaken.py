"""A save that a newer generation has overtaken: while it was written, that one has put its own file there.

A member that is cut off from everybody may still reach the storage, and its world is over before it knows. So each file
that takes its place by a rename carries whose it is, as an extended attribute, which changes none of its bytes. A file
system without them says nothing, and then nothing is refused. Of one generation no save is refused, whoever made it,
nor is one refused for a file that was there when it began.
"""

import os

NAME = "user.outrider.generation"
WHY = (
    "the save to %s is not put there: a newer generation of this job has saved there meanwhile, and the world of this "
    "process is over"
)


class Overtaken(Exception):
    """The sentence for the user. The file that is there stays."""


class Save:
    """From its begin on. `generation`: a number that grows from one generation to the next; 0: of no rank of ours."""

    def __init__(self, target, generation):
        self.target, self.generation = target, generation
        self.job = os.environ.get("OUTRIDER_JOB", "")
        self.found = _identity(target)

    def mark(self, path):
        """Of the file that will take the target's place, not of one that is written over."""
        if self.generation and path != self.target:
            try:
                os.setxattr(path, NAME, ("%d %s" % (self.generation, self.job)).encode("utf-8", "surrogateescape"))
            except (OSError, AttributeError):  # not on this file system
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
