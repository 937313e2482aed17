"""The node check in template and launcher: starts, times and reaps one probe, and reports its result.

The probe is never this process itself: a template that has run a tensor operation cannot fork again. A repeated order
is in progress or was answered; a newer one ends the probe of the older. If worker processes are started or stopped
meanwhile, the probe ends too, and its round says nothing about this member.
"""

import json
import os
import shutil
import signal
import sys
import time

from ..command import context
from ..command.torchrun_args import is_python
from ..process import tree
from . import probe

SLACK = 1.0
CAUGHT = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGHUP)


class Checking:
    """`start(order, pipe)` returns the pid of a probe; `send(line)` reaches the sidecar."""

    def __init__(self, start, send):
        self.start, self.send = start, send
        self.pid, self.order, self.line = 0, None, None
        self.reading, self.began, self.is_late = -1, 0.0, False

    def lines(self):
        """The messages for a new connection: the last answer."""
        return [self.line] if self.line is not None else []

    def begin(self, order):
        if self.order is not None and self.order["order"] == order["order"]:
            if self.line is not None:
                self.send(self.line)
            return
        self.interrupt()
        self.order, self.line, self.began, self.is_late = order, None, time.monotonic(), False
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)  # a process of the probe may keep the other end open for a moment
        try:
            self.pid = self.start(order, writing)
        except OSError as error:
            self._answer({"result": "not started", "error": error.strerror or str(error)})
        finally:
            os.close(writing)

    def pause(self, now):
        """Seconds until the next `look`, or None while nothing is measured."""
        return max(0.0, self.began + self.order["seconds"] + SLACK - now) if self.pid else None

    def look(self, now):
        if self.pid and not self.is_late and self.pause(now) == 0.0:
            self.is_late = True
            self._kill()

    def reaped(self, pid, status):
        """Called when a child has ended; returns whether it was the probe."""
        if not self.pid or pid != self.pid:
            return False
        self.pid = 0
        try:
            found = json.loads(os.read(self.reading, 65536).decode())
        except (OSError, ValueError):
            result = "too slow" if self.is_late else "died"
            found = {"result": result, "error": "" if self.is_late else probe.how_it_ended(status)}
        self._answer(found)
        return True

    def interrupt(self):
        """Ends the probe when ranks are started or stopped; the caller reaps it."""
        if self.pid:
            self._kill()
            self.pid = 0
            self._answer({"result": "interrupted", "error": "worker processes were started or ended meanwhile"})

    def _kill(self):
        for send in (os.killpg, os.kill):
            try:
                send(self.pid, signal.SIGKILL)
            except OSError:
                pass

    def _answer(self, found):
        os.close(self.reading)
        self.line = dict({"elapsed": time.monotonic() - self.began}, **found)
        self.line.update(event="checked", order=self.order["order"], round=self.order["round"])
        self.send(self.line)


def forked(order, pipe, volume, forget):
    """Starts a probe by a fork of the template, whose imports are done; `forget` closes what is the template's
    alone."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _settle(parent)
        forget()
        probe.run(order, pipe, volume)
    finally:
        os._exit(1)


def spawned(order, pipe, argv, environ):
    """Starts a probe of a launcher: with the Python of its command if it is one, else with the container's."""
    parent = os.getpid()
    python = argv[0] if is_python(os.path.basename(argv[0])) else None
    python = python or shutil.which("python3", path=environ.get("PATH")) or sys.executable
    pid = os.fork()
    if pid:
        return pid
    try:
        _settle(parent)
        os.set_inheritable(pipe, True)
        settings = json.dumps({"order": order, "pipe": pipe, "volume": environ["OUTRIDER_DIR"]})
        kept = {name: value for name, value in environ.items() if name not in context.OURS + ("OUTRIDER_DIR",)}
        os.execvpe(python, [python, probe.__file__], dict(kept, **{probe.ORDER: settings}))
    finally:
        os._exit(127)


def _settle(parent):
    tree.die_with_parent(parent)
    signal.set_wakeup_fd(-1)
    for number in CAUGHT:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
