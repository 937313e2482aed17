"""A rehearsal: the template's own command, begun anew beside the running ranks, as far as its imports.

The user asks for a restart because a file has changed, and what has changed may not even compile. Whether it does is
found out before anything is stopped: a fresh interpreter does the early imports as the next template would, compiles
the script and every module of the user's that it names, looks for what they import, and ends. It never runs the
script, and it is the first that the kernel kills where memory is short.
"""

import ast
import json
import os
import signal
import sys
import time

from . import descent, early, invocation
from .inner import is_python

VARIABLE = "OUTRIDER_REHEARSAL"
"""In the environment of a rehearsal: the descriptor that takes its answer."""
WHAT = "rehearsal"
PATIENCE = 120.0
"""Seconds that the imports may take; the sidecar (`hooks_link`) and the master (`collecting`) wait longer."""
MEANING = {("sys", "path"), ("sys", "meta_path"), ("sys", "path_hooks"), ("sys", "modules"), ("site", "addsitedir")}
"""A module that touches one of these may find what we do not."""


class Rehearsing:
    """The template's side: one rehearsal at a time. `say(line)` tells the sidecar. The answer is JSON: `refused` with
    the error, `unchecked` where nothing can be said, else `parked` with the seconds that it took."""

    def __init__(self, say, python, argv, environ):
        self.say, self.python, self.argv = say, python, argv
        self.environ = {name: value for name, value in environ.items() if name != early.SKIP}
        self.pid, self.order, self.reading, self.began, self.is_late = 0, None, -1, 0.0, False

    def begin(self, order):
        if order.get("order") == self.order:  # repeated: it goes on, or its answer is on the way
            return
        self.interrupt()
        self.order, self.began, self.is_late = order.get("order"), time.monotonic(), False
        if self.argv is None:
            body = {"unchecked": "the command is no Python script that could be compiled"}
            self.say({"event": "collected", "order": self.order, "body": body})
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
            descent.die_with_parent(parent)
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
        """Seconds until `look` is wanted; None while there is no rehearsal."""
        return max(0.0, self.began + PATIENCE - now) if self.pid and not self.is_late else None

    def look(self, now):
        if self.pid and not self.is_late and now >= self.began + PATIENCE:
            self.is_late = True
            _kill(self.pid)

    def reaped(self, pid, status):
        """A child has ended; True where it was the rehearsal."""
        if not self.pid or pid != self.pid:
            return False
        self.pid = 0
        os.set_blocking(self.reading, False)  # a process that an import left behind may hold the other end
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
        """What runs here is started or ended: the next ranks read the script in any case."""
        if self.pid:
            _kill(self.pid)
            descent.reap(self.pid)
            self.pid = 0
            self._answer({"unchecked": "worker processes were started or ended meanwhile"})

    def _answer(self, found):
        os.close(self.reading)
        self.say({"event": "collected", "order": self.order, "body": found})


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
    """The command by which the Python of `argv` compiles the script there; None where that is no script. A launcher
    has no template, so this is all that can be known of its next ranks."""
    called = invocation.parse(argv)
    if not is_python(os.path.basename(argv[0])) or called.kind != "script" or os.path.isdir(called.target):
        return None
    return [argv[0], "-I", "-S", "-c", COMPILE, called.target]


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
    """The rehearsal's side, in the place of a template; never returns. `start`: the template's Beginning."""
    code = 1
    try:
        began, pipe = time.monotonic(), int(os.environ.pop(VARIABLE))
        prepare()
        why = why_not(start.called, start.skip, start.without)
        found = {"refused": why} if why else {"parked": round(time.monotonic() - began, 3)}
        os.write(pipe, json.dumps(found).encode()[:65536])
        code = 0
    finally:
        os._exit(code)


def why_not(called, skip=None, begin_again=None):
    """Why the next ranks would end before the script's first own statement; "" where nothing says that they would."""
    first = early.Early(called, skip, begin_again)
    try:
        reading = Reading(first)
        reading.read()
        first.run()
        reading.check_names()
    except Wrong as wrong:
        return str(wrong)
    except ImportError as error:
        return "%s: %s" % (type(error).__name__, error)
    return ""


class Wrong(Exception):
    """What is wrong, with its file and line."""


class Reading:
    """Compiles the script and the modules of the user's that it names, each once."""

    def __init__(self, first):
        self.first, self.seen, self.is_sure = first, set(), True
        self.wanted = []
        """(where, module, name) of what is imported from an installation without a condition."""

    def read(self):
        folder, kind, target = self.first.folder, self.first.invocation.kind, self.first.invocation.target
        if folder is not None:
            sys.path.insert(0, folder)
        try:
            if kind == "code":
                self._source(target.encode(), "-c", None)
            elif kind == "script" and not os.path.isdir(target):
                self._file(target, None)
            elif kind == "module":
                self._module(target)
        finally:
            if folder is not None:
                sys.path.remove(folder)

    def _file(self, path, package):
        if path in self.seen:
            return
        self.seen.add(path)
        try:
            with open(path, "rb") as file:
                source = file.read()
        except OSError as error:
            raise Wrong("%s: %s" % (_shown(path), error.strerror)) from None
        self._source(source, path, package)

    def _source(self, source, path, package):
        try:
            tree = ast.parse(source, path)
            compile(tree, path, "exec", dont_inherit=True)  # what only the compiler sees: a return outside a function
        except SyntaxError as error:
            where = "%s line %s" % (_shown(path), error.lineno) if error.lineno else _shown(path)
            raise Wrong("%s: %s: %s" % (where, type(error).__name__, error.msg)) from None
        except ValueError as error:  # null bytes
            raise Wrong("%s: %s" % (_shown(path), error)) from None
        self.is_sure = self.is_sure and not any(_changes_meaning(node) for node in ast.walk(tree))
        unconditional = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            where = ""
            if self.is_sure and id(node) in unconditional:
                where = "%s line %d" % (_shown(path), node.lineno)
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._module(alias.name, where)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node, package, where)

    def _import_from(self, node, package, where):
        dotted = node.module or ""
        if node.level:
            if package is None:
                return
            parts = package.split(".")
            dotted = ".".join(parts[: len(parts) - node.level + 1] + ([dotted] if dotted else []))
        self._module(dotted, where)
        for alias in node.names:
            self._module(dotted + "." + alias.name)  # a module as well, perhaps
            if where and not node.level and alias.name != "*":
                self.wanted.append((where, dotted, alias.name))

    def _has(self, module, name):
        try:
            getattr(module, name)
            return True
        except AttributeError:
            path = getattr(module, "__path__", None)
            return path is not None and self.first._find(module.__name__ + "." + name, path) is not None
        except Exception:  # it is made when it is asked for, and what came of that is the ranks' to say
            return True

    def check_names(self):
        """Once the early imports are done: is in a module what is imported from it?"""
        for where, dotted, name in self.wanted:
            module = sys.modules.get(dotted)
            if module is not None and not self._has(module, name):
                raise Wrong("%s: ImportError: cannot import name %r from %r" % (where, name, dotted))

    def _module(self, dotted, where=""):
        """Reads it where it is the user's own. `where` names the statement that cannot do without it."""
        top = dotted.partition(".")[0]
        if top in sys.builtin_module_names or top in sys.modules:
            return
        spec = self.first._find(top, None)
        if spec is None:
            if where:
                raise Wrong("%s: ModuleNotFoundError: No module named '%s'" % (where, top))
            return
        if not self.first.is_local(top, spec):
            return
        for name, found in self.first._chain(dotted):
            if found.has_location and found.origin and found.origin.endswith(".py"):
                self._file(found.origin, name if found.submodule_search_locations else name.rpartition(".")[0])


def _changes_meaning(node):
    return (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (node.value.id, node.attr) in MEANING
    )


def _shown(path):
    """As the user would name it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
