"""Decides whether this process belongs to the container's command or was executed beside it.

Exec probes, postStart hooks and `kubectl exec` execute processes beside the command. The question matters only if the
pod's variables load the hooks, because no launcher could be put before the image's command: then executed processes
have the variables too. Among the processes of this cgroup without a parent in the pid namespace, the oldest is the
container's first process, and every other one was executed. A process whose parents have ended is identified by its
session, since each executed command begins its own.
"""

import os

LAUNCHED = "OUTRIDER_LAUNCHED"
"""Set by outrider-launch: the container's command loads the hooks, and executed commands do not have them."""


def is_of_the_command(environ):
    if environ.get(LAUNCHED):
        return True
    try:
        return _is_of_the_command()
    except (OSError, ValueError, IndexError):  # /proc is missing, or not that of Linux
        return True


def _is_of_the_command():
    own = _cgroup("self")
    roots = sorted(_roots(own))
    if not roots:
        return True
    pid = os.getpid()
    while _cgroup(pid) == own:
        if pid == roots[0][1]:
            return True
        pid = _parent(pid)
        if pid == 0:
            return False
    return os.getsid(0) == os.getsid(roots[0][1])


def _roots(own):
    """(start, pid) of each process in this cgroup whose parent is outside of the pid namespace."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = _stat(int(name))
                if stat[1] == b"0" and _cgroup(name) == own:
                    yield int(stat[19]), int(name)
            except (OSError, IndexError):  # the process has ended meanwhile
                continue


def _cgroup(pid):
    with open("/proc/%s/cgroup" % pid, "rb") as file:
        return file.read()


def _stat(pid):
    with open("/proc/%d/stat" % pid, "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _parent(pid):
    return int(_stat(pid)[1])
