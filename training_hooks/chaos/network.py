"""Faults of a member's network: `slow-network=MS` and `cut-network`.

They are made inside of the member's network namespace by somebody who may (CAP_NET_ADMIN), and never in that of the
machine. What is on one's own machine (`lo`) is left alone. A rule that an earlier fault could not take away, because it
was killed, is taken away by the next one, and by the end of the namespace.
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
"""A command before each tool, where they are not of this file system (`nsenter ...`)."""
TOOL_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
NODE_AGENTS = ("kubelet", "containerd", "crio", "dockerd")
MACHINES_PIDS = "pid:[4026531836]"
"""Of the first pid namespace, by the kernel's own number (linux/proc_ns.h)."""


class NetworkFault(Kind):
    """`rules`: of iptables, each begins with its chain."""

    rules = ()

    def begin(self):
        try:
            is_shared = is_the_machines()
        except OSError as error:
            raise base.Refused("it cannot be seen whether this is the machine's own network: %s" % error) from None
        if is_shared:
            raise base.Refused("this process has the machine's own network, which is not broken; isolate the member")
        self.tables = [name for name, file in FAMILIES if os.path.exists(file)]
        self.undo()

    def put_rules(self):
        for table in self.tables:
            for chain, *rule in self.rules:
                code, said = tool(table, "-w", "-I", chain, "1", *rule)
                if code:
                    self.undo()
                    raise base.Refused("%s cannot do it: %s" % (table, said))

    def undo(self):
        for table in self.tables:
            for rule in self.rules:
                while tool(table, "-w", "-D", *rule)[0] == 0:
                    pass


FAMILIES = (("iptables", "/proc/self/net/dev"), ("ip6tables", "/proc/self/net/if_inet6"))


class CutNetwork(NetworkFault):
    """Nothing goes out, nothing comes in, and nobody is told: as if a cable was pulled."""

    rules = (("INPUT", "!", "-i", "lo", "-j", "DROP"), ("OUTPUT", "!", "-o", "lo", "-j", "DROP"))

    def begin(self):
        super().begin()
        self.put_rules()
        self.about = "every packet from and to it is dropped"


class SlowNetwork(NetworkFault):
    """Every round trip takes MS milliseconds more, by the kernel's netem on what goes out where it has that.

    Else what comes in is queued: TCP lets only little of what goes out wait in its own machine.
    """

    rules = (("INPUT", "!", "-i", "lo", "-j", "NFQUEUE", "--queue-num", str(QUEUE), "--queue-bypass"),)

    def __init__(self, value, session):
        super().__init__(value, session)
        self.pid, self.shaped = 0, []

    def begin(self):
        if not self.value.isdigit() or not 1 <= int(self.value) <= LONGEST_DELAY:
            raise base.Refused("%r is no number of milliseconds from 1 to %d" % (self.value, LONGEST_DELAY))
        super().begin()
        delay = int(self.value)
        if self._shape(delay):
            how = "netem"
        else:
            how = "a queue of what comes in, since this kernel has no netem"
            self.pid = delaying(delay / 1000.0)
            self.put_rules()
        self.about = "every round trip of it takes %d ms more, by %s" % (delay, how)

    def _shape(self, delay):
        found = devices()
        if not found:
            raise base.Refused("there is no way out of here that could be slow")
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
        """Without it, packets pass as if there was no rule."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = 0
            return True
        return False


def delaying(seconds):
    """The pid of a process that holds packets back."""
    try:
        queue = nfqueue_delay.Queue(QUEUE)
    except OSError as error:
        raise base.Refused("this kernel has neither netem nor a netfilter queue for it: %s" % error.strerror)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        queue.close()
        return pid
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, base.ENDING)
        tree.die_with_parent(parent)
        kept = queue.socket.fileno()
        os.closerange(3, kept)  # who started the fault reads from a pipe until its end
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        nfqueue_delay.hold_back(queue, seconds)
    finally:
        os._exit(1)


def devices():
    """Those that packets leave by."""
    with open("/proc/self/net/route") as file:
        return sorted({line.split()[0] for line in file.read().splitlines()[1:]} - {"lo"})


def is_the_machines():
    """Whether this is the network of the machine, and not one of a container or an isolated member."""
    if os.readlink("/proc/self/ns/pid") != MACHINES_PIDS:
        return False
    return os.readlink("/proc/self/ns/net") == os.readlink("/proc/%d/ns/net" % machines_process())


def machines_process():
    """One that lives in the machine's own namespaces. Not every root may look at those of pid 1."""
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if cgroup.read("/proc/%d/comm" % pid).strip() in NODE_AGENTS:
            return pid
    return 1


def tool(*words):
    """(exit code, what it said), 127 where there is no such tool."""
    command = os.environ.get(TOOLS, "").split() + list(words)
    environ = dict(os.environ, PATH=TOOL_PATH)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode(errors="replace").strip()


KINDS = {"cut-network": CutNetwork, "slow-network": SlowNetwork}
