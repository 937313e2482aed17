"""Records whether this pod's command runs without Outrider for good: one word in the volume; the first one counts.

`served`: a master has connected to the sidecar. `alone <pid>`: the command was released, and no master ever starts a
process here. The sidecar writes the file too (`sidecar/shell/alone_word.py`). Both create it by a hard link, so only
one of two writers succeeds.
"""

import os

FILE = "supervision"
ALONE = "alone"
EVERY = 60.0
"""Seconds between two log lines about the wait for a sidecar."""
LET_GO_WITHIN = 5.0
"""Seconds for which a command that was released before looks for a sidecar, which watches its end."""


def recorded(volume):
    """The recorded word, or "" while nothing is decided."""
    try:
        with open(os.path.join(volume, FILE)) as file:
            return file.read(64).partition(" ")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def claim(volume):
    """Records that the command of this process runs alone; returns whether it may. It may also if nothing can be
    written: the container then has no volume of Outrider, so no other process reads it there."""
    if not os.path.isdir(volume):
        return True
    before = "%s/.%s.%d" % (volume, FILE, os.getpid())
    try:
        with open(before, "w") as file:
            file.write("%s %d\n" % (ALONE, os.getpid()))
        place = os.replace if recorded(volume) == ALONE else os.link
        place(before, os.path.join(volume, FILE))
    except OSError:
        pass
    finally:
        try:
            os.unlink(before)
        except OSError:
            pass
    return recorded(volume) == ALONE


class Waiting:
    """The wait for a sidecar, with a log line every minute. `patience`: seconds; infinity: for ever."""

    def __init__(self, volume, patience):
        self.volume = volume
        self.patience = min(patience, LET_GO_WITHIN) if recorded(volume) == ALONE else patience
        self.began = self.log_at = self.until = 0.0

    def begin(self, now):
        self.began, self.log_at, self.until = now, now + EVERY, now + self.patience

    def is_over(self, now):
        """True if no sidecar came and the command may run; a command that may not run is waited for without end."""
        if now < self.until:
            return False
        if claim(self.volume):
            return True
        self.until = float("inf")
        return False

    def pause(self, now):
        return max(0.0, min(self.until, self.log_at) - now)

    def look(self, now):
        """Logs each minute why nothing starts, for the reader of the container's log."""
        if now < self.log_at:
            return
        self.log_at = now + EVERY
        missing = "no sidecar has connected for %d s: see the container outrider-sidecar" % (now - self.began)
        then = (
            "without limit"
            if self.until == float("inf")
            else "for %d s more, then it runs without Outrider" % (self.until - now)
        )
        log("%s; the command waits %s" % (missing, then))


def log(text):
    """Writes one line to the container's log. Hooks write nothing else there except at the end, as nothing runs yet."""
    try:
        os.write(2, ("outrider: %s\n" % text).encode("utf-8", "replace"))
    except OSError:
        pass
