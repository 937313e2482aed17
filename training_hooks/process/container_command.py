"""Whether this process belongs to the container's own command, or was put beside it. An exec probe, a postStart hook
and `kubectl exec` put processes there.

Asked only where the pod's own variables brought the hooks in, since no launcher could be put in front of the image's
command: what the kubelet executes has them too then. The container's first process is the oldest of those that nobody
inside has started, in this process's cgroup; what else nobody inside has started was executed into it. A process whose
parents are gone is told by its session: each executed command begins one of its own.
"""

import os

LAUNCHED = "OUTRIDER_LAUNCHED"
"""Set by outrider-launch: the hooks come by the container's command, and no executed command has them."""


def is_of_the_command(environ):
    if environ.get(LAUNCHED):
        return True
    try:
        return _is_of_the_command()
    except (OSError, ValueError, IndexError):  # no /proc as Linux has it
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
    """(start, pid) of those in this cgroup whose parent is outside of the pid namespace."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = _stat(int(name))
                if stat[1] == b"0" and _cgroup(name) == own:
                    yield int(stat[19]), int(name)
            except (OSError, IndexError):  # it has ended meanwhile
                continue


def _cgroup(pid):
    with open("/proc/%s/cgroup" % pid, "rb") as file:
        return file.read()


def _stat(pid):
    with open("/proc/%d/stat" % pid, "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _parent(pid):
    return int(_stat(pid)[1])
