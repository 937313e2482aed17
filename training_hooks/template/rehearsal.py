"""A rehearsal: the template's command started again beside the running ranks, up to the end of its imports.

The user requests a restart because a file has changed, and the changed file may not even compile. A rehearsal finds out
before anything is stopped: a fresh interpreter does the early imports as the next template would, compiles the script
and the user's modules that it imports, looks for what they import (`importable`), and ends. It never runs the script,
and the kernel kills it first if memory is short.
"""

import json
import os
import signal
import sys
import time

from ..command import invocation
from ..command.torchrun_args import is_python
from ..process import tree
from . import fork_safety, importable, preimport

VARIABLE = "OUTRIDER_REHEARSAL"
"""Environment variable of a rehearsal with the descriptor for its answer."""
WHAT = "rehearsal"
PATIENCE = 120.0
"""Seconds that the imports may take; the sidecar (`hooks_link`) and the master (`collecting`) wait longer."""
MOST_NOTES, MOST_CHARACTERS = 20, 300
"""The most notes of an answer and characters of one: the whole has to fit into a pipe."""


class Rehearsing:
    """The template's side: one rehearsal at a time. `send(line)` reaches the sidecar. The answer is JSON: `refused`
    with the error, `unchecked` if the result is unknown, else `parked` with the seconds that it took."""

    def __init__(self, send, python, argv, environ):
        self.send, self.python, self.argv = send, python, argv
        self.environ = {name: value for name, value in environ.items() if name != preimport.SKIP}
        self.pid, self.order, self.reading, self.began, self.is_late = 0, None, -1, 0.0, False

    def begin(self, order):
        if order.get("order") == self.order:  # repeated: it still runs, or its answer is on the way
            return
        self.interrupt()
        self.order, self.began, self.is_late = order.get("order"), time.monotonic(), False
        if self.argv is None:
            body = {"unchecked": "the command is not a Python script that can be compiled"}
            self.send({"event": "collected", "order": self.order, "body": body})
            return
        self.reading, writing = os.pipe()
        try:
            self.pid = self._start(writing)
        except OSError as error:
            self._answer({"unchecked": "fork: %s" % error})
        finally:
            os.close(writing)

    def _start(self, pipe):
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            tree.die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            os.nice(10)
            _be_killed_first()
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os.set_inheritable(pipe, True)
            os.execvpe(self.python, self.argv, dict(self.environ, **{VARIABLE: str(pipe)}))
        finally:
            os._exit(127)

    def pause(self, now):
        """Seconds until the next `look`, or None while there is no rehearsal."""
        return max(0.0, self.began + PATIENCE - now) if self.pid and not self.is_late else None

    def look(self, now):
        if self.pid and not self.is_late and now >= self.began + PATIENCE:
            self.is_late = True
            _kill(self.pid)

    def reaped(self, pid, status):
        """Called when a child has ended; returns whether it was the rehearsal."""
        if not self.pid or pid != self.pid:
            return False
        self.pid = 0
        os.set_blocking(self.reading, False)  # a process that an import has left behind may keep the other end open
        try:
            found = json.loads(os.read(self.reading, 65536).decode())
        except (OSError, ValueError):
            found = {"refused": self._why_silent(status)}
        self._answer(found)
        return True

    def _why_silent(self, status):
        if self.is_late:
            return "its imports were not done within %g s" % PATIENCE
        if not os.WIFSIGNALED(status):
            return "its Python ended with code %d before its imports were done" % os.WEXITSTATUS(status)
        name = signal.Signals(os.WTERMSIG(status)).name
        hint = " (is there memory for a second template beside the ranks?)" if name == "SIGKILL" else ""
        return "its Python was ended by %s before its imports were done%s" % (name, hint)

    def interrupt(self):
        """Ends the rehearsal when ranks are started or stopped: the next ranks read the script in any case."""
        if self.pid:
            _kill(self.pid)
            tree.reap(self.pid)
            self.pid = 0
            self._answer({"unchecked": "worker processes were started or ended meanwhile"})

    def _answer(self, found):
        os.close(self.reading)
        self.send({"event": "collected", "order": self.order, "body": found})


COMPILE = """
import json, os, sys
path = sys.argv[1]
found = {"parked": 0.0}
try:
    with open(path, "rb") as file:
        compile(file.read(), path, "exec", dont_inherit=True)
except SyntaxError as error:
    found = {"refused": "%s line %s: %s: %s" % (path, error.lineno, type(error).__name__, error.msg)}
except (OSError, ValueError) as error:
    found = {"refused": "%s: %s" % (path, error)}
os.write(int(os.environ["OUTRIDER_REHEARSAL"]), json.dumps(found).encode())
"""


def compiling(argv):
    """The command with which the Python of `argv` compiles its script; None if there is no script. A launcher has no
    template, so nothing more can be known about its next ranks."""
    called = invocation.parse(argv)
    if not is_python(os.path.basename(argv[0])) or called.kind != "script" or os.path.isdir(called.target):
        return None
    return [argv[0], "-I", "-S", "-c", COMPILE, called.target]


def template_of(careful, skip):
    """The template that this process would be, for `outrider doctor`: why it must not be forked, the threads that each
    import has left, the imports that each rank does itself with their reasons, torch's version if it was imported, and
    notes."""
    torch = getattr(sys.modules.get("torch"), "__version__", "")
    notes = [note[:MOST_CHARACTERS] for note in careful.notes[:MOST_NOTES]]
    left_out = {name: why[:MOST_CHARACTERS] for name, why in sorted(skip.items())[:MOST_NOTES]}
    return {"unsafe": fork_safety.why_not(), "threads": careful.tasks, "left_out": left_out, "torch": str(torch),
            "notes": notes}  # fmt: skip


def _be_killed_first():
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _kill(pid):
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except OSError:
            pass


def perform(start, prepare):
    """The rehearsal's side, instead of a template; never returns. `start`: the template's Beginning."""
    code = 1
    try:
        began, pipe = time.monotonic(), int(os.environ.pop(VARIABLE))
        prepare()
        careful = importable.Careful(start.called, start.skip, start.without)
        found = dict(importable.judged(careful), **template_of(careful, start.skip))
        found["seconds"] = round(time.monotonic() - began, 3)
        os.write(pipe, json.dumps(found).encode()[:65536])
        code = 0
    finally:
        os._exit(code)
