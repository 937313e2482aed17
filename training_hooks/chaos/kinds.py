"""The faults: what each does when it starts, and how it is undone.

A kind has `begin()`, which raises `chaos.base.Refused`, `undo()`, `is_over()` (there is nothing left to hold), and
`about`, a clause for the user who made it. Ordinary processes of the container's user do all of it, with no right that
the trainer does not have.
"""

import contextlib
import math
import mmap
import os
import re
import signal
import time

from ..process import cgroup, tree
from . import base

PERIOD = 0.1
"""Seconds of one load period; the busy processes of a container start theirs together, so that there is no gap."""
TO_A_CORE = 4
"""Busy processes per core: the scheduler is fair, and a single one would leave more than half of the core."""
MOST_OF_A_MACHINE = 90
"""Most percent of a memory without a container limit: the rest is for everything else on the machine."""
CHUNK = 1 << 20


class Kind:
    def __init__(self, value, session):
        """`session`: the session of the process that requests the fault, which must live to read the answer."""
        self.value, self.session = value, session
        self.about = ""

    def begin(self):
        pass

    def undo(self):
        pass

    def is_over(self):
        return False

    def percent(self):
        if not self.value.isdigit() or not 1 <= int(self.value) <= 100:
            raise base.Refused("%r is not a percentage; it must be a whole number from 1 to 100" % self.value)
        return int(self.value)


class BadNode(Kind):
    """Only a record; the probe of the node check reads it (`nodecheck.probe.chaos_of`)."""

    def begin(self):
        how = "takes five times as long" if self.value == "slow" else "dies"
        self.about = "the probe of the next node check %s" % how


# -- the CPU ----------------------------------------------------------------------------------------------------------
class CpuLoad(Kind):
    """Processes that are busy for PERCENT of the time, at the trainer's priority."""

    def begin(self):
        share, cores = self.percent() / 100.0, cores_allowed()
        self.pids = [burning(share) for _ in range(TO_A_CORE * max(1, math.ceil(cores)))]
        self.about = "%d processes that are busy for %s %% of the time, on %g cores" % (
            len(self.pids),
            self.value,
            cores,
        )

    def undo(self):
        for pid in self.pids:
            base.send(pid, signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)


def cores_allowed():
    """Cores by affinity and by the container's limit, which may be a fraction."""
    quotas = [quota_of(path, text) for path, text in cgroup.files("cpu", "cpu.cfs_quota_us", "cpu.max")]
    return min([float(len(os.sched_getaffinity(0))), *(quota for quota in quotas[:1] if quota)])


def quota_of(path, text):
    """The limit in cores, or None if there is none."""
    quota, _, period = text.strip().partition(" ")
    if not period:
        period = cgroup.read(os.path.join(os.path.dirname(path), "cpu.cfs_period_us")).strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def burning(share):
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, base.ENDING)
        tree.die_with_parent(parent)
        os.closerange(3, 64)  # the reader of the answer waits for the end of its pipe
        os.setsid()  # if the kernel shares cores among sessions (autogroup), each process counts for itself
        while True:
            now = time.monotonic()
            period = now - now % PERIOD
            while time.monotonic() < period + share * PERIOD:
                pass
            time.sleep(max(0.0, period + PERIOD - time.monotonic()))
    finally:
        os._exit(0)


# -- memory -----------------------------------------------------------------------------------------------------------
class FillMemory(Kind):
    """Writes to pages until the memory is full. Within a container's limit they belong to a file without a name, so to
    no process: the kernel then kills a training process. If the whole machine would run short, they are this process's
    own, so that the kernel may kill it like any other."""

    def begin(self):
        percent, (limit, used, whose) = self.percent(), room()
        if whose == MACHINE and percent > MOST_OF_A_MACHINE:
            raise base.Refused("%s has no limit: at most %d %% of it is filled" % (whose, MOST_OF_A_MACHINE))
        missing = limit * percent // 100 - used
        if missing <= 0:
            raise base.Refused(
                "%s is filled to %d %% of its %d MiB already" % (whose, 100 * used // limit, limit >> 20)
            )
        self.about = "%d MiB, so that %s of %d MiB is %d %% full" % (missing >> 20, whose, limit >> 20, percent)
        self.block = unowned_memory() if whose == CONTAINER else None
        if self.block is None:
            self.block = mmap.mmap(-1, missing, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        ones = b"\1" * CHUNK
        with contextlib.suppress(OSError):  # no process is left to be killed: the memory is full
            while self.block.tell() + CHUNK <= missing and not signal.sigpending() & set(base.ENDING):
                self.block.write(ones)

    def undo(self):
        self.block.close()


def unowned_memory():
    """A file in memory without a name; None if Python or its C library is too old for it."""
    make = getattr(os, "memfd_create", None)
    return open(make("outrider-fault", os.MFD_CLOEXEC), "wb", buffering=0) if make else None


CONTAINER, MACHINE = "the container's memory", "the machine's memory"


def room():
    """(limit, used, owner) in bytes, without what the kernel would free at once."""
    whole, available = _machine()
    for path, text in cgroup.files("memory", "memory.limit_in_bytes", "memory.max"):
        if text.strip().isdigit() and int(text) < whole:
            folder = os.path.dirname(path)
            used = [cgroup.read(os.path.join(folder, name)) for name in ("memory.usage_in_bytes", "memory.current")]
            return int(text), max(0, int("".join(used) or 0) - _inactive(folder)), CONTAINER
    return whole, whole - available, MACHINE


def _machine():
    text = cgroup.read("/proc/meminfo")
    whole, available = (re.search(r"^%s: +(\d+) kB" % name, text, re.M) for name in ("MemTotal", "MemAvailable"))
    return int(whole.group(1)) << 10, int(available.group(1)) << 10


def _inactive(folder):
    text = cgroup.read(os.path.join(folder, "memory.stat"))
    found = re.search(r"^total_inactive_file (\d+)$", text, re.M) or re.search(r"^inactive_file (\d+)$", text, re.M)
    return int(found.group(1)) if found else 0


# -- stopped processes ------------------------------------------------------------------------------------------------
class Stopped(Kind):
    """Sends SIGSTOP; undo continues the processes that live."""

    def __init__(self, value, session):
        super().__init__(value, session)
        self.stopped = {}

    def stop(self, pids):
        fresh = [pid for pid in pids if pid not in self.stopped]
        for pid in fresh:
            self.stopped[pid] = base.started(pid)
            base.send(pid, signal.SIGSTOP)
        return fresh

    def is_over(self):
        return not self._living()

    def _living(self):
        return [pid for pid, start in self.stopped.items() if start is not None and base.started(pid) == start]

    def undo(self):
        for pid in self._living():
            base.send(pid, signal.SIGCONT)


class Hang(Stopped):
    """Stops one rank of this container, the last."""

    def begin(self):
        found = workers(os.environ)
        if not found:
            raise base.Refused("no %s runs here now" % NAMED["process"])
        self.stop(found[-1:])
        self.about = "the worker process %d is stopped" % found[-1]


class FreezeMember(Stopped):
    """Stops every process of the member that this user may signal, and their new children."""

    def begin(self):
        while self.stop(pid for pid in base.processes(os.environ) if tree.session(pid) != self.session):
            pass
        count = len(self.stopped)
        self.about = "%d process%s stopped" % (count, " is" if count == 1 else "es are")


def workers(environ):
    """The pids of this container's ranks: forks of the template have a name (`template.fork_worker.name_process`),
    those of a launcher have their generation in the environment."""
    all_here = base.processes(environ)
    found = {pid for pid, each in all_here.items() if _is_rank(pid) or "OUTRIDER_GENERATION" in each}
    return sorted(pid for pid in found if tree.parent(pid) not in found)


def _is_rank(pid):
    return re.match(r"rank \d+$", cgroup.read("/proc/%d/comm" % pid)) is not None


KINDS = {
    "cpu-load": CpuLoad,
    "fill-memory": FillMemory,
    "bad-node": BadNode,
    "hang": Hang,
    "freeze-member": FreezeMember,
}


# -- what a signal can be sent to -------------------------------------------------------------------------------------
def _worker(environ):
    return workers(environ)[-1:]


def _launcher(environ):
    """The parent of the ranks; without ranks, the first process of the container."""
    found = [tree.parent(pid) for pid in _worker(environ)] or list((base.first_process(environ) or ())[:1])
    return [pid for pid in found if pid > 1]


def _sidecar(environ):
    """The sidecar by its command line; a shell above it restarts it."""
    return [pid for pid in base.processes(environ) if _command_line(pid).endswith(SIDECARS)]


def _command_line(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _all(environ):
    own = os.getsid(0)
    return sorted(pid for pid in base.processes(environ) if tree.session(pid) != own)


SIDECARS = (b"-m\0outrider.sidecar\0", b"-m\0sidecar\0")
"""Ends of a sidecar's command line: of this release, and of the one before."""
PARTS = {"process": _worker, "launcher": _launcher, "sidecar": _sidecar, "all": _all}
NAMED = {"process": "worker process", "launcher": "template or launcher", "sidecar": "sidecar", "all": "process"}
