"""Makes a fault in the network of a pod of this node.

It is the program of the privileged pod that `outrider chaos` starts beside it, since a trainer may not break its own
network.

    main.py beside cut-network:60s       with OUTRIDER_POD_UID, which the processes of the pod have

It sees the processes of the node (hostPID), enters the network namespace of the pod, and holds the fault there until
its time is over, it is stopped, or the pod has ended. The tools are the node's.
"""

import os
import sys

from ..process import cgroup
from . import base, network


def enter(volume, fault):
    """Becomes the fault; raises Refused."""
    pid = min(base.processes(os.environ), default=None)
    if pid is None:
        raise base.Refused("no process of the pod can be seen on its node")
    first = first_of(pid)
    tools = "nsenter --mount=/proc/%d/ns/mnt --" % network.machines_process()
    own = {base.BESIDE: str(first), base.MARK: base.named(fault), network.TOOLS: tools}
    words = [sys.executable, "-I", "-S", base.PROGRAM, "hold", fault, "1", "0"]
    _outlive_a_lack_of_memory()
    net = "--net=/proc/%d/ns/net" % first
    os.execvpe("nsenter", ["nsenter", net, "--"] + words, dict(os.environ, OUTRIDER_DIR=volume, **own))


def first_of(pid):
    """The first process of the pod of `pid`: its containers may restart, and the pod is still broken."""
    space = _space(pid)
    for each in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if _space(each) == space and cgroup.read("/proc/%d/status" % each).partition("NSpid:")[2].split()[1:2] == ["1"]:
            return each
    return pid


def _outlive_a_lack_of_memory():
    """Protects this process: a killed fault is not undone, and a pod without requests is killed first."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("-999")
    except OSError:
        pass


def _space(pid):
    try:
        return os.readlink("/proc/%d/ns/pid" % pid)
    except OSError:
        return None
