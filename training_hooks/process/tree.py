"""Ends and reaps every descendant of this process before the next generation may start.

Killing the ranks alone is not enough. The DataLoader workers of a killed rank live on for seconds and hold its sockets
and its GPU memory, and a killed `bash -c` leaves its Python behind. The template and the launcher are child subreapers
(`adopt_orphans`): a process below them that loses its parent becomes their own child. So a walk over /proc from here
finds every descendant, whatever groups or sessions it created.

An `Ending` is a state machine that never blocks, so its owner keeps serving its socket: call `step()` after SIGCHLD or
after the returned seconds, until it returns None. Its rules:

- A rank inside a save is not signalled until the save is over or `save_grace` has passed. A rank that was exiting by
  itself gets `LEAVING` seconds for that: its exit may show the reason for this stop.
- A root gets SIGTERM, then SIGKILL after `grace`, or after `handler_grace` if it catches SIGTERM (it runs code of its
  own). A stopped or frozen process dies by the SIGKILL.
- The processes that a dead root leaves are killed at once. Only a process that ignores SIGTERM first gets
  `ORPHAN_GRACE` to see its pipes close: multiprocessing's resource tracker removes named semaphores then.
- Processes in `keep`, and those below them, are not signalled: the reader of the ranks' output lives as long as the
  container.
- It is complete when only `keep` is left below this process, zombies included.
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
"""Seconds between polls, growing each time: the end of a grandchild sends no SIGCHLD to this process."""

TERM_BIT = 1 << (signal.SIGTERM - 1)


def prctl(option, value):
    """Whether the kernel accepted it; a container that forbids prctl must not stop training."""
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def adopt_orphans():
    """Makes this process the parent of every orphan below it."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid):
    """Called in a child: it is killed when the thread that forked it ends, or at once if that has ended already."""
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
    """The same, if the kernel has no `children` file or a thread ended during the read."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and _stat(int(name))[1] == pid:
            found.append(int(name))
    return found


def _stat(pid):
    """(state, parent pid), or ("", 0) if the process does not exist."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[1])
    except (OSError, ValueError, IndexError):
        return "", 0


def parent(pid):
    """The parent pid, or 0 if the process does not exist."""
    return _stat(pid)[1]


def session(pid):
    """The session, or 0 if the process does not exist."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def descendants(pid, keep=()):
    """Every descendant of `pid`, parents before children, except `keep` and its descendants."""
    found, queue = [], [pid]
    while queue:
        for child in children(queue.pop(0)):
            if child not in keep and child not in found:
                found.append(child)
                queue.append(child)
    return found


def _signal_sets(pid):
    """(ignored, caught) signals as bit masks."""
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
    """The wait status of a child that has ended, or None if it lives or is not a child (any more)."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except OSError:
        return None
    return status if done == pid else None


def _may_be_ours(status, deadline):
    """Whether a signal sent from here may have caused such an end of a root."""
    if not os.WIFSIGNALED(status):
        return True
    number = os.WTERMSIG(status)
    return number == signal.SIGTERM or (number == signal.SIGKILL and deadline == float("-inf"))


class Ending:
    """One stop of everything below this process. `killed` counts the roots that had to be killed. `statuses` has the
    wait status of every reaped child. `by_itself` has that of roots that a signal from elsewhere ended, or that were
    exiting before; the owner may take entries out."""

    def __init__(self, roots, grace=0.2, handler_grace=10.0, save_grace=60.0, is_saving=None, keep=(), whole=False,
                 had_left=None):  # fmt: skip
        """`roots` are the ranks. `whole`: every descendant is its own root (a command that the launcher runs: the shell
        on top would die of the SIGTERM, and its Python would never get it). `had_left`: as in `process.exit_state`."""
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
        """Does what is due; returns the seconds until the next call, or None when nothing is left."""
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
        """Sends due signals; returns the living roots."""
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
        """Ends processes that no living root is above any more."""
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
    """The same, blocking, for callers without other work. Returns the number of roots that had to be killed."""
    ending = Ending(roots, grace, handler_grace, save_grace, is_saving, keep, whole)
    while True:
        pause = ending.step()
        if pause is None:
            return ending.killed
        time.sleep(pause)
