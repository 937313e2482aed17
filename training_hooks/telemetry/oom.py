"""Was a worker process killed for want of memory? Only the container's cgroup says it: the process itself gets a plain
SIGKILL, and as its parent lives on, the container's status never reads OOMKilled.

The kernel's counter oom_kill grows before the process is gone. It is one number for the whole container, so each growth
is given to one process: to one that was killed, or to one whose exception says so of a process that it had started, as
a rank's does that loses a DataLoader worker. An exception alone is no reason: a rank raises one too where another rank
was killed. A growth that nobody claims (a helper that nobody waits for) is forgotten.
"""

import os
import re
import signal
import time

from ..process import cgroup

CLAIMED_WITHIN = 2.0
"""Seconds between the kill and its end, or the exception for it: the kernel may take some to free the memory."""
LOOK_EVERY = 1.0
KILLED = (128 + signal.SIGKILL, 256 - signal.SIGKILL)
"""What a shell ends with whose command was killed, and a Python that ends with the return code of its child."""
LOST_A_PROCESS = re.compile(
    r"SIGKILL|signal: Killed|signal 9\b|exit(ed)? (code|status):? (-9|137)\b|"
    r"exited unexpectedly|unexpectedly terminated|terminated abruptly"
)
"""In the words of torch's DataLoader and multiprocessing, of subprocess, concurrent.futures and joblib."""
LEAVES_WITHIN = 60.0
"""Seconds that a process may take to end after its exception: a DataLoader waits for its other workers."""


def counter_file():
    """The file with this container's oom_kill counter; "" where there is none."""
    found = cgroup.files("memory", "memory.oom_control", "memory.events")
    return next((path for path, _ in found if read_counter(path) is not None), "")


def read_counter(path):
    """oom_kill as a number, None where the file does not have it."""
    try:
        with open(path) as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def lost_a_process(error):
    """This exception says that a process which its own had started was killed."""
    return bool(error) and LOST_A_PROCESS.search("%s: %s" % (error.get("type"), error.get("message"))) is not None


def killed_first(ends):
    """{pid: wait status} of what ended in one moment, as pairs: those that were killed first: the growth is theirs."""
    return sorted(ends.items(), key=lambda end: (not os.WIFSIGNALED(end[1]), end[0]))


class OutOfMemory:
    """`growths` are those that nobody has claimed, as [not before, not after, how many]; `counted` is the counter as it
    was at the last look."""

    def __init__(self, path=None):
        self.path = counter_file() if path is None else path
        self.forget()

    def _read(self):
        return (read_counter(self.path) or 0) if self.path else 0

    def forget(self):
        """Nobody claims what has happened so far."""
        self.growths, self.counted, self.looked = [], self._read(), time.monotonic()

    def look_again(self):
        """Now and then, so that it is known when the counter grew."""
        if time.monotonic() - self.looked >= LOOK_EVERY:
            self.look()

    def look(self):
        now, count = time.monotonic(), self._read()
        if count > self.counted:
            self.growths.append([self.looked, now, count - self.counted])
        self.growths = [growth for growth in self.growths if growth[2] and now - growth[1] < LEAVES_WITHIN]
        self.counted, self.looked = max(count, self.counted), now

    def explains(self, code, number, at, error=None):
        """Claims one growth for a process that ended so; `at`: when it raised what ended it, else now."""
        if not (number == signal.SIGKILL or code in KILLED or (code and lost_a_process(error))):
            return False
        self.look()
        for growth in self.growths:
            if growth[2] and growth[0] <= at <= growth[1] + CLAIMED_WITHIN:
                growth[2] -= 1
                return True
        return False
