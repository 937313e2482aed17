"""Was a worker process killed for want of memory? Only the container's cgroup says it: the process itself gets a plain
SIGKILL, and as its parent lives on, the container's status never reads OOMKilled.

The kernel's counter oom_kill grows before the process is gone. It is one number for the whole container, so each growth
is given to one killed process, and a growth that nobody claims (a DataLoader worker) is forgotten after a moment.
"""

import time

V2 = ("/sys/fs/cgroup%s/memory.events", "/sys/fs/cgroup/memory.events")
V1 = ("/sys/fs/cgroup/memory%s/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control")


CLAIMED_WITHIN = 2.0
"""Seconds between the kill and its end: the kernel may take some of them to free the memory."""


def candidates(text):
    """Where the counter may be, for this /proc/self/cgroup: in our own group, else (a container sees its group as the
    root, whatever its path is called outside) at the top."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    paths = [V1[0] % path.rstrip("/") for _, kinds, path in rows if "memory" in kinds.split(",")]
    paths += [V2[0] % path.rstrip("/") for _, kinds, path in rows if not kinds]
    return paths + [V1[1], V2[1]]


def counter_file():
    """The file with this container's oom_kill counter; "" where there is none."""
    try:
        with open("/proc/self/cgroup") as file:
            paths = candidates(file.read())
    except OSError:
        return ""
    return next((path for path in paths if read_counter(path) is not None), "")


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


class OutOfMemory:
    """`seen` is what has been claimed or forgotten, `newer` the counter as it was at the last look."""

    def __init__(self, path=None):
        self.path = counter_file() if path is None else path
        self.forget()

    def _read(self):
        return (read_counter(self.path) or 0) if self.path else 0

    def forget(self):
        """Nobody claims what has happened so far."""
        self.seen = self.newer = self._read()
        self.looked = time.monotonic()

    def grow_old(self):
        """Forgets what was there at the last look, if that is long ago: nobody died of it."""
        if time.monotonic() - self.looked >= CLAIMED_WITHIN:
            self.seen, self.newer, self.looked = max(self.seen, self.newer), self._read(), time.monotonic()

    def explains_a_kill(self):
        """Claims one growth, for a process that ended by SIGKILL just now."""
        if self._read() <= self.seen:
            return False
        self.seen += 1
        return True
