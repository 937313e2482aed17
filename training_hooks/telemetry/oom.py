"""Decides whether a worker process was killed for lack of memory; only the container's cgroup shows it.

The process itself gets a plain SIGKILL, and since its parent lives on, the container's status is never OOMKilled.

The kernel's counter oom_kill grows before the process has ended. It is one number for the whole container, so each
growth is assigned to one process: one that was killed, or one whose exception reports the kill of a process that it had
started, as in a rank that loses a DataLoader worker. An exception alone proves nothing, since a rank raises one too if
another rank was killed. A growth without such a process (a helper without a waiting parent) is forgotten.
"""

import os
import re
import signal
import time

from ..process import cgroup

CLAIMED_WITHIN = 2.0
"""Seconds between the kill and the process's end or exception: the kernel may need some to free the memory."""
LOOK_EVERY = 1.0
KILLED = (128 + signal.SIGKILL, 256 - signal.SIGKILL)
"""Exit code of a shell whose command was killed, and of a Python that exits with the return code of its child."""
LOST_A_PROCESS = re.compile(
    r"SIGKILL|signal: Killed|signal 9\b|exit(ed)? (code|status):? (-9|137)\b|"
    r"exited unexpectedly|unexpectedly terminated|terminated abruptly"
)
"""Messages of torch's DataLoader, multiprocessing, subprocess, concurrent.futures and joblib."""
LEAVES_WITHIN = 60.0
"""Seconds that a process may take to end after its exception: a DataLoader waits for its other workers."""


def counter_file():
    """The file with this container's oom_kill counter, or "" if there is none."""
    found = cgroup.files("memory", "memory.oom_control", "memory.events")
    return next((path for path, _ in found if read_counter(path) is not None), "")


def read_counter(path):
    """The oom_kill counter, or None if the file does not have it."""
    try:
        with open(path) as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def lost_a_process(error):
    """Whether this exception reports that a process started by its own process was killed."""
    return bool(error) and LOST_A_PROCESS.search("%s: %s" % (error.get("type"), error.get("message"))) is not None


def killed_first(ends):
    """Sorts processes that ended together, {pid: wait status}, into pairs with the killed ones first: the growth is
    theirs."""
    return sorted(ends.items(), key=lambda end: (not os.WIFSIGNALED(end[1]), end[0]))


class OutOfMemory:
    """`growths` are the unassigned ones, each [not before, not after, count]; `counted` is the counter at the last
    reading."""

    def __init__(self, path=None):
        self.path = counter_file() if path is None else path
        self.forget()

    def _read(self):
        return (read_counter(self.path) or 0) if self.path else 0

    def forget(self):
        """Drops the unassigned growths of the past."""
        self.growths, self.counted, self.looked = [], self._read(), time.monotonic()

    def look_again(self):
        """Reads the counter now and then, so that the time of each growth is known."""
        if time.monotonic() - self.looked >= LOOK_EVERY:
            self.look()

    def look(self):
        now, count = time.monotonic(), self._read()
        if count > self.counted:
            self.growths.append([self.looked, now, count - self.counted])
        self.growths = [growth for growth in self.growths if growth[2] and now - growth[1] < LEAVES_WITHIN]
        self.counted, self.looked = max(count, self.counted), now

    def explains(self, code, number, at, error=None):
        """Assigns one growth to a process that ended so. `at`: when it raised its last exception, else now."""
        if not (number == signal.SIGKILL or code in KILLED or (code and lost_a_process(error))):
            return False
        self.look()
        for growth in self.growths:
            if growth[2] and growth[0] <= at <= growth[1] + CLAIMED_WITHIN:
                growth[2] -= 1
                return True
        return False
