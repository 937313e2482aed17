"""The faults themselves: what each does at its beginning, and how it is undone.

A kind has `begin()`, which raises `chaos.base.Refused`, `undo()`, `is_over()` (there is nothing left to hold), and
`about`, a clause for whoever made it. Plain processes of the container's own user do all of it, with no right that the
trainer has not.
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
"""Seconds; the busy processes of a container begin theirs together, so that nobody runs undisturbed in a gap."""
TO_A_CORE = 4
"""Busy processes to a core: the scheduler is fair, and one alone would leave a trainer more than half of it."""
MOST_OF_A_MACHINE = 90
"""Percent of a memory without a limit of the container's own: all that the machine runs lives in the rest."""
CHUNK = 1 << 20


class Kind:
    def __init__(self, value, session):
        """`session`: of whoever asks for the fault, and must live to hear the answer."""
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
            raise base.Refused("%r is no percentage; it is a whole number from 1 to 100" % self.value)
        return int(self.value)


class BadNode(Kind):
    """The probe of the node check looks for it (`nodecheck.probe.chaos_of`)."""

    def begin(self):
        how = "takes five times as long" if self.value == "slow" else "dies"
        self.about = "the probe of the next node check %s" % how


# -- the processor ----------------------------------------------------------------------------------------------------
class CpuLoad(Kind):
    """Processes that are busy for PERCENT of the time, at the priority that the trainer has."""

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
    """By affinity and by the container's limit, which may be a part of one."""
    quotas = [quota_of(path, text) for path, text in cgroup.files("cpu", "cpu.cfs_quota_us", "cpu.max")]
    return min([float(len(os.sched_getaffinity(0))), *(quota for quota in quotas[:1] if quota)])


def quota_of(path, text):
    """Cores; None where there is no limit."""
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
        os.closerange(3, 64)  # whoever waits for the answer waits for the end of its pipe
        os.setsid()  # where the kernel shares its cores among sessions (autogroup), each counts for itself
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
    """Pages that are written to. Those of a container's own memory belong to a file without a name, and so to no
    process: the kernel takes who trains for the one that uses too much. Where the whole machine would be short, they
    are this process's own, which it may kill for them as any other."""

    def begin(self):
        percent, (limit, used, whose) = self.percent(), room()
        if whose == MACHINE and percent > MOST_OF_A_MACHINE:
            raise base.Refused("%s has no limit: at most %d %% of it is filled" % (whose, MOST_OF_A_MACHINE))
        wanted = limit * percent // 100 - used
        if wanted <= 0:
            raise base.Refused(
                "%s is filled to %d %% of its %d MiB already" % (whose, 100 * used // limit, limit >> 20)
            )
        self.about = "%d MiB, so that %s of %d MiB is %d %% full" % (wanted >> 20, whose, limit >> 20, percent)
        self.block = nobodys_memory() if whose == CONTAINER else None
        if self.block is None:
            self.block = mmap.mmap(-1, wanted, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        ones = b"\1" * CHUNK
        with contextlib.suppress(OSError):  # nobody is left to be killed for it: it is full
            while self.block.tell() + CHUNK <= wanted and not signal.sigpending() & set(base.ENDING):
                self.block.write(ones)

    def undo(self):
        self.block.close()


def nobodys_memory():
    """None where Python or its C library is too old for it."""
    make = getattr(os, "memfd_create", None)
    return open(make("outrider-fault", os.MFD_CLOEXEC), "wb", buffering=0) if make else None


CONTAINER, MACHINE = "the container's memory", "the machine's memory"


def room():
    """(limit, used, whose) in bytes, without what the kernel would give back at once."""
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
    """SIGSTOP; whoever lives is let go on."""

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
    """One rank of this container, the last."""

    def begin(self):
        found = workers(os.environ)
        if not found:
            raise base.Refused("no %s runs here now" % NAMED["process"])
        self.stop(found[-1:])
        self.about = "the worker process %d is stopped" % found[-1]


class FreezeMember(Stopped):
    """Every process of the member that this user may signal, and what is forked meanwhile."""

    def begin(self):
        while self.stop(pid for pid in base.processes(os.environ) if tree.session(pid) != self.session):
            pass
        count = len(self.stopped)
        self.about = "%d process%s stopped" % (count, " is" if count == 1 else "es are")


def workers(environ):
    """The pids of this container's ranks: forks of the template have their name (`template.fork_worker.name_process`),
    a launcher's have their generation in the environment."""
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
    """What the ranks are children of; while there are none, the first process of the container."""
    found = [tree.parent(pid) for pid in _worker(environ)] or list((base.first_process(environ) or ())[:1])
    return [pid for pid in found if pid > 1]


def _sidecar(environ):
    """By its command line; around it is a shell that starts it again."""
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
"""How a sidecar's command line ends, and how that of the release before did."""
PARTS = {"process": _worker, "launcher": _launcher, "sidecar": _sidecar, "all": _all}
NAMED = {"process": "worker process", "launcher": "template or launcher", "sidecar": "sidecar", "all": "process"}
