"""Whether this pod's command runs without Outrider for good: one word in the volume, and the first one stands.

`served`: a master has spoken to the sidecar. `alone <pid>`: the command was let go, and no master ever starts anything
here. The sidecar writes it too (`sidecar/shell/alone_word.py`); both make the file by a link, so that one of two is
first.
"""

import os

FILE = "supervision"
ALONE = "alone"
EVERY = 60.0
"""Seconds between two lines that say what is waited for."""
LET_GO_WITHIN = 5.0
"""Seconds for which a command that was let go before looks for a sidecar, which watches its end."""


def said(volume):
    """The word; empty while nothing is decided."""
    try:
        with open(os.path.join(volume, FILE)) as file:
            return file.read(64).partition(" ")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def claim(volume):
    """Writes that the command of this process runs alone; True where it may. Where nothing can be written it may too:
    the container has no volume of ours, so that nobody else looks there either."""
    if not os.path.isdir(volume):
        return True
    before = "%s/.%s.%d" % (volume, FILE, os.getpid())
    try:
        with open(before, "w") as file:
            file.write("%s %d\n" % (ALONE, os.getpid()))
        place = os.replace if said(volume) == ALONE else os.link
        place(before, os.path.join(volume, FILE))
    except OSError:
        pass
    finally:
        try:
            os.unlink(before)
        except OSError:
            pass
    return said(volume) == ALONE


class Waiting:
    """How long a sidecar is waited for, and what is said meanwhile. `patience`: seconds, infinity: for ever."""

    def __init__(self, volume, patience):
        self.volume = volume
        self.patience = min(patience, LET_GO_WITHIN) if said(volume) == ALONE else patience
        self.began = self.tell_at = self.until = 0.0

    def begin(self, now):
        self.began, self.tell_at, self.until = now, now + EVERY, now + self.patience

    def is_over(self, now):
        """True where nobody came and the command may run; one that may not is waited for ever."""
        if now < self.until:
            return False
        if claim(self.volume):
            return True
        self.until = float("inf")
        return False

    def pause(self, now):
        return max(0.0, min(self.until, self.tell_at) - now)

    def look(self, now):
        """Each minute: a reader of the container's log sees why nothing begins."""
        if now < self.tell_at:
            return
        self.tell_at = now + EVERY
        waited = "no sidecar has come for %d s: see the container outrider-sidecar" % (now - self.began)
        then = "for ever" if self.until == float("inf") else "for %d s more" % (self.until - now)
        tell("%s; the command waits %s" % (waited, then))


def tell(text):
    """One line in the container's own log: the one place besides the end where hooks speak, as nothing runs yet."""
    try:
        os.write(2, ("outrider: %s\n" % text).encode("utf-8", "replace"))
    except OSError:
        pass
