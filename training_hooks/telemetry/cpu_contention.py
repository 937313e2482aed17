"""Measures the CPU time that this process loses to its cgroup's limit and to the machine's hypervisor.

It is read inside the container, because the sidecar is in another cgroup. A container sees its own group as the root,
whatever its path is outside.

The group's counter also grows if the limit stops only threads on which no step depends, such as DataLoader workers. So
it counts only as far as threads of this process waited for a core meanwhile: the main thread, or a thread that moves
gradients.
"""

import os
import time

from ..process import cgroup


def throttled_ns(text):
    """Nanoseconds for which the group was throttled, from a cpu.stat; None if it has no such value."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in ("throttled_time", "throttled_usec") and value.strip().isdigit():
            return int(value) * (1000 if name == "throttled_usec" else 1)
    return None


def stolen_share(text):
    """(ticks that the hypervisor gave to other machines, all ticks), from /proc/stat."""
    fields = text.partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return 0, 0
    ticks = [int(field) for field in fields[1:9]]
    return ticks[7], sum(ticks)


def waited_ns():
    """Nanoseconds for which all threads of this process have waited for a core, together."""
    waited = 0
    for thread in os.listdir("/proc/self/task"):
        fields = cgroup.read("/proc/self/task/%s/schedstat" % thread).split()
        waited += int(fields[1]) if len(fields) > 1 else 0
    return waited


class Pressure:
    """Compares two readings of the counters."""

    def __init__(self):
        found = cgroup.files("cpu", "cpu.stat", "cpu.stat")
        self.path = next((path for path, text in found if throttled_ns(text) is not None), "")

    def look(self):
        """(nanoseconds throttled, nanoseconds for which threads have waited, (ticks stolen, all ticks))."""
        throttled = (throttled_ns(cgroup.read(self.path)) or 0) if self.path else 0
        return throttled, waited_ns() if throttled else 0, stolen_share(cgroup.read("/proc/stat"))

    @staticmethod
    def since(before, now, elapsed_ns):
        """(share of the time throttled, share of the time stolen), each from 0 to 1."""
        held_up = min(now[0] - before[0], now[1] - before[1])
        throttled = held_up / elapsed_ns if elapsed_ns > 0 else 0.0
        ticks = now[2][1] - before[2][1]
        stolen = (now[2][0] - before[2][0]) / ticks if ticks > 0 else 0.0
        return min(max(throttled, 0.0), 1.0), min(max(stolen, 0.0), 1.0)


class Container:
    """Compares two readings of the time that this process lost to its own container: the limit, and other processes."""

    def __init__(self):
        self.path = Pressure().path

    def look(self):
        """Nanoseconds: throttled, used by the whole group, used by this process, waited for a core by its threads."""
        own = time.process_time_ns()
        return throttled_ns(cgroup.read(self.path)) or 0, used_ns(self.path), own, waited_ns()

    @staticmethod
    def took_ns(before, now):
        """Nanoseconds lost: at most what this process has waited, and at most what the rest of its group has used. A
        wait for processes outside of the container does not count."""
        throttled, used, own, waited = (after - earlier for earlier, after in zip(before, now))
        return max(0, min(waited, throttled + max(0, used - own)))


def used_ns(path):
    """Nanoseconds of CPU time of all processes of the group with this cpu.stat; 0 if unknown."""
    for line in cgroup.read(path).splitlines():
        if line.startswith("usage_usec "):
            return 1000 * int(line.split()[1])
    of_v1 = os.path.dirname(path).replace("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct", 1)
    return int(cgroup.read(os.path.join(of_v1, "cpuacct.usage")) or 0)
