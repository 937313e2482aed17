"""Faults of a member's network: `slow-network=MS` and `cut-network`.

A process with CAP_NET_ADMIN makes them inside the member's network namespace, and never in the machine's own. The
loopback device (`lo`) is not affected. A rule that an earlier fault could not remove, because it was killed, is removed
by the next fault, and by the end of the namespace.
"""

import os
import signal
import subprocess

from ..process import cgroup, tree
from . import base, nfqueue_delay
from .kinds import Kind

LONGEST_DELAY = 60000
QUEUE = 4711
TOOLS = "OUTRIDER_TOOLS"
"""Command before each tool if the tools are not of this file system (`nsenter ...`)."""
TOOL_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
NODE_AGENTS = ("kubelet", "containerd", "crio", "dockerd")
MACHINES_PIDS = "pid:[4026531836]"
"""Inode number of the first pid namespace, fixed in the kernel (linux/proc_ns.h)."""


class NetworkFault(Kind):
    """`rules`: iptables rules, each begins with its chain."""

    rules = ()

    def begin(self):
        try:
            is_shared = is_the_machines()
        except OSError as error:
            raise base.Refused("cannot determine whether this is the machine's own network: %s" % error) from None
        if is_shared:
            raise base.Refused("Forbidden: this process is in the machine's own network; isolate the member")
        self.tables = [name for name, file in FAMILIES if os.path.exists(file)]
        self.undo()

    def put_rules(self):
        for table in self.tables:
            for chain, *rule in self.rules:
                code, output = tool(table, "-w", "-I", chain, "1", *rule)
                if code:
                    self.undo()
                    raise base.Refused("%s failed: %s" % (table, output))

    def undo(self):
        for table in self.tables:
            for rule in self.rules:
                while tool(table, "-w", "-D", *rule)[0] == 0:
                    pass


FAMILIES = (("iptables", "/proc/self/net/dev"), ("ip6tables", "/proc/self/net/if_inet6"))


class CutNetwork(NetworkFault):
    """Drops all packets in both directions without an error, as if the cable was pulled."""

    rules = (("INPUT", "!", "-i", "lo", "-j", "DROP"), ("OUTPUT", "!", "-o", "lo", "-j", "DROP"))

    def begin(self):
        super().begin()
        self.put_rules()
        self.about = "every packet from and to it is dropped"


class SlowNetwork(NetworkFault):
    """Adds MS milliseconds to every round trip, by the kernel's netem on outgoing packets if it has that.

    Otherwise incoming packets are queued: TCP lets only few outgoing packets wait on its own machine.
    """

    rules = (("INPUT", "!", "-i", "lo", "-j", "NFQUEUE", "--queue-num", str(QUEUE), "--queue-bypass"),)

    def __init__(self, value, session):
        super().__init__(value, session)
        self.pid, self.shaped = 0, []

    def begin(self):
        if not self.value.isdigit() or not 1 <= int(self.value) <= LONGEST_DELAY:
            raise base.Refused(
                "slow-network: Invalid value: %r: must be 1 to %d milliseconds" % (self.value, LONGEST_DELAY)
            )
        super().begin()
        delay = int(self.value)
        if self._shape(delay):
            how = "netem"
        else:
            how = "a queue of incoming packets, since this kernel has no netem"
            self.pid = delaying(delay / 1000.0)
            self.put_rules()
        self.about = "every round trip of it takes %d ms more, by %s" % (delay, how)

    def _shape(self, delay):
        found = devices()
        if not found:
            raise base.Refused("this network has no device for outgoing packets")
        for device in found:
            code, _ = tool(
                "tc", "qdisc", "add", "dev", device, "root", "netem", "delay", "%dms" % delay, "limit", "100000"
            )
            if code:
                break
            self.shaped.append(device)
        else:
            return True
        self._unshape()
        return False

    def _unshape(self):
        while self.shaped:
            tool("tc", "qdisc", "del", "dev", self.shaped.pop(), "root")

    def undo(self):
        super().undo()
        self._unshape()
        if self.pid:
            base.send(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def is_over(self):
        """Whether the delaying process has ended; packets then pass as without a rule."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = 0
            return True
        return False


def delaying(seconds):
    """Starts a process that delays packets, and returns its pid."""
    try:
        queue = nfqueue_delay.Queue(QUEUE)
    except OSError as error:
        raise base.Refused("this kernel has neither netem nor a netfilter queue: %s" % error.strerror)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        queue.close()
        return pid
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, base.ENDING)
        tree.die_with_parent(parent)
        kept = queue.socket.fileno()
        os.closerange(3, kept)  # the process that started the fault reads from a pipe until its end
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        nfqueue_delay.hold_back(queue, seconds)
    finally:
        os._exit(1)


def devices():
    """The devices for outgoing packets."""
    with open("/proc/self/net/route") as file:
        return sorted({line.split()[0] for line in file.read().splitlines()[1:]} - {"lo"})


def is_the_machines():
    """Whether this is the network of the machine, and not that of a container or an isolated member."""
    if os.readlink("/proc/self/ns/pid") != MACHINES_PIDS:
        return False
    return os.readlink("/proc/self/ns/net") == os.readlink("/proc/%d/ns/net" % machines_process())


def machines_process():
    """A process in the machine's own namespaces. Not every root may read those of pid 1."""
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if cgroup.read("/proc/%d/comm" % pid).strip() in NODE_AGENTS:
            return pid
    return 1


def tool(*words):
    """(exit code, output) of a tool; code 127 if there is no such tool."""
    command = os.environ.get(TOOLS, "").split() + list(words)
    environ = dict(os.environ, PATH=TOOL_PATH)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode(errors="replace").strip()


KINDS = {"cut-network": CutNetwork, "slow-network": SlowNetwork}
