"""Ends everything that descends from this process, and reaps it, before the next generation may start.

Killing the ranks alone is not enough: the DataLoader workers of a killed rank live on for seconds, hold its sockets and
its GPU memory, and a `bash -c` that dies leaves its python behind. The template and the launcher are child subreapers
(`adopt_orphans`), so whatever loses its parent below them becomes their own child: walking /proc from here finds all of
it, whatever groups or sessions it made for itself.

An `Ending` is a machine of small steps that never blocks, so that its owner keeps answering its socket meanwhile: call
`step()` when SIGCHLD came or the returned seconds have passed, until it returns None. Its laws:

- A rank inside a save is not touched until it has left it or `save_grace` is over, and one that was leaving by itself
  is given `LEAVING` to do so: how it ended may be why all of this is ended.
- A root gets SIGTERM, then SIGKILL after `grace`, or after `handler_grace` where it catches SIGTERM (its own code wants
  to run). A stopped or frozen process dies by the SIGKILL.
- What a dead root leaves behind is killed at once; only a process that ignores SIGTERM is first given `ORPHAN_GRACE` to
  see its pipes close, because multiprocessing's resource tracker removes named semaphores then.
- Nothing in `keep`, nor below it, is touched: the reader of the ranks' output lives as long as the container.
- It is done only when nothing but `keep` is left below this process, zombies included.
"""

import ctypes
import os
import signal
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ORPHAN_GRACE = 0.2
LEAVING = 0.2
POLL_FIRST, POLL_LAST = 0.005, 0.1
"""A grandchild's end sends no SIGCHLD here, so there is a poll beside it, slower each time."""

TERM_BIT = 1 << (signal.SIGTERM - 1)


def prctl(option, value):
    """True where the kernel took it; a container that forbids prctl must not stop a training."""
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def adopt_orphans():
    """Makes this process the parent of every orphan below it."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid):
    """Called in a child: it is killed when the thread that forked it ends, also when that has happened already."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def children(pid):
    """The living and zombie children of a process, by any of its threads."""
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), "rb") as file:
                found.extend(int(word) for word in file.read().split())
    except FileNotFoundError:
        return _children_by_scan(pid) if os.path.exists("/proc/%d" % pid) else found
    except (OSError, ValueError):
        return found
    return found


def _children_by_scan(pid):
    """The same where the kernel was built without `children`, or a thread ended while it was read."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and _stat(int(name))[1] == pid:
            found.append(int(name))
    return found


def _stat(pid):
    """(state, parent pid), ("", 0) where there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[1])
    except (OSError, ValueError, IndexError):
        return "", 0


def parent(pid):
    """0 where there is no such process."""
    return _stat(pid)[1]


def session(pid):
    """0 where there is no such process."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def descendants(pid, keep=()):
    """Everything below `pid`, parents before children, without `keep` and what is below it."""
    found, queue = [], [pid]
    while queue:
        for child in children(queue.pop(0)):
            if child not in keep and child not in found:
                found.append(child)
                queue.append(child)
    return found


def _signal_sets(pid):
    """(ignored, caught) as bit masks."""
    ignored = caught = 0
    try:
        with open("/proc/%d/status" % pid) as file:
            for line in file:
                if line.startswith("SigIgn:"):
                    ignored = int(line[7:], 16)
                elif line.startswith("SigCgt:"):
                    caught = int(line[7:], 16)
    except (OSError, ValueError):
        pass
    return ignored, caught


def catches(pid, number):
    return bool(_signal_sets(pid)[1] & 1 << (number - 1))


def catches_term(pid):
    return bool(_signal_sets(pid)[1] & TERM_BIT)


def ignores_term(pid):
    return bool(_signal_sets(pid)[0] & TERM_BIT)


def send(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def reap(pid):
    """The wait status of a child that has ended, None while it lives or where it is no child (any more)."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except OSError:
        return None
    return status if done == pid else None


def _may_be_ours(status, deadline):
    """Whether a root that ended so may have done it because it was told to."""
    if not os.WIFSIGNALED(status):
        return True
    number = os.WTERMSIG(status)
    return number == signal.SIGTERM or (number == signal.SIGKILL and deadline == float("-inf"))


class Ending:
    """One ending of everything below this process. `killed` counts roots that had to be killed, `statuses` holds the
    wait status of every child reaped on the way, `by_itself` that of roots that a signal ended which was not sent from
    here, or that were ending before: the owner may take them out."""

    def __init__(self, roots, grace=0.2, handler_grace=10.0, save_grace=60.0, is_saving=None, keep=(), whole=False,
                 had_left=None):  # fmt: skip
        """`roots` are the ranks. `whole`: every descendant is a root of its own (a command that the launcher runs,
        where the shell on top would die of the SIGTERM and its python never hear of it). `had_left`: as in
        `process.exit_state`.
        """
        self.roots = set(roots)
        self.had_left = had_left or (lambda pid: "")
        self.grace, self.handler_grace, self.save_grace = grace, handler_grace, save_grace
        self.is_saving = is_saving or (lambda pid: False)
        self.keep = frozenset(keep)
        self.whole = whole
        self.killed = 0
        self.statuses = {}
        self.by_itself = {}
        self.done = False
        self._began = None
        self._deadlines = {}
        self._poll = POLL_FIRST

    def step(self, now=None):
        """Does what is due; returns the seconds until it wants to be called again, None when nothing is left."""
        now = time.monotonic() if now is None else now
        if self._began is None:
            self._began = now
        self._reap()
        living = self._living()
        if not living and not descendants(os.getpid(), self.keep):
            self.done = True
            return None
        roots = self._end_roots(living, now)
        self._end_orphans(living, roots, now)
        return self._pause(now)

    def _reap(self):
        for pid in children(os.getpid()):
            status = None if pid in self.keep else reap(pid)
            if status is not None:
                self.statuses[pid] = status
                deadline = self._deadlines.pop(pid, None)
                if pid in self.roots and self._ended_by_itself(pid, status, deadline):
                    self.by_itself[pid] = status

    def _ended_by_itself(self, pid, status, deadline):
        had = self.had_left(pid)
        return not _may_be_ours(status, deadline) or had == "raised" or (had == "leaving" and os.WIFEXITED(status))

    def _living(self):
        return [pid for pid in descendants(os.getpid(), self.keep) if _stat(pid)[0] not in ("", "Z", "X")]

    def _end_roots(self, living, now):
        """Signals what is due; returns the roots that live."""
        roots = [pid for pid in living if self.whole or pid in self.roots]
        for pid in roots:
            if pid in self._deadlines:
                self._kill_late(pid, now)
            elif now - self._began < LEAVING and self.had_left(pid) == "leaving":
                continue
            elif now - self._began >= self.save_grace or not self.is_saving(pid):
                patience = self.handler_grace if catches_term(pid) else self.grace
                self._deadlines[pid] = now + patience
                send(pid, signal.SIGTERM)
        return roots

    def _kill_late(self, pid, now):
        if now >= self._deadlines[pid]:
            self.killed += self._deadlines[pid] != float("-inf")
            self._deadlines[pid] = float("-inf")
            send(pid, signal.SIGKILL)

    def _end_orphans(self, living, roots, now):
        """What no living root holds any more."""
        held = set(roots)
        for root in roots:
            held.update(descendants(root, self.keep))
        for pid in living:
            if pid not in held:
                patient = ignores_term(pid)
                if now >= self._deadlines.setdefault(pid, now + ORPHAN_GRACE if patient else now):
                    send(pid, signal.SIGKILL)

    def _pause(self, now):
        due = [deadline - now for deadline in self._deadlines.values() if deadline > now]
        pause = min([self._poll, *due])
        self._poll = min(self._poll * 2, POLL_LAST)
        return pause


def end(roots, grace=0.2, handler_grace=10.0, save_grace=60.0, is_saving=None, keep=(), whole=False):
    """The same, blocking, for whoever has nothing else to do. Returns how many roots had to be killed."""
    ending = Ending(roots, grace, handler_grace, save_grace, is_saving, keep, whole)
    while True:
        pause = ending.step()
        if pause is None:
            return ending.killed
        time.sleep(pause)
