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

from . import descent, early, invocation, reading
from .inner import is_python

VARIABLE = "OUTRIDER_REHEARSAL"
"""In the environment of a rehearsal: the descriptor that takes its answer."""
WHAT = "rehearsal"
PATIENCE = 120.0
"""Seconds that the imports may take; the sidecar (`hooks_link`) and the master (`collecting`) wait longer."""


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
        found = judged(Careful(start.called, start.skip, start.without))
        found.setdefault("seconds", round(time.monotonic() - began, 3))
        os.write(pipe, json.dumps(found).encode()[:65536])
        code = 0
    finally:
        os._exit(code)


def judged(careful):
    """`refused` with what the next ranks would end with before the script's first own statement, if that is certain."""
    try:
        careful.run()
    except Wrong as wrong:
        return {"refused": str(wrong)}
    except ImportError as error:
        if careful.may_have_made_it():
            return {"unchecked": "%s: %s" % (type(error).__name__, error)}
        return {"refused": "%s: %s: %s" % (careful.place(), type(error).__name__, error)}
    except Exception as error:  # whatever it is, it is ours, and the script may be well
        return {"unchecked": "%s: %s" % (type(error).__name__, error)}
    return {"parked": len(careful.done)}


class Wrong(Exception):
    """What is wrong, with its file and line."""


class Careful(early.Early):
    """The early imports, where an error is an answer. What the reading does not understand (`early.Stopped`) ends it,
    because from there on an import may mean something else; behind that, only files are compiled which the script
    imports in any case."""

    def __init__(self, invocation, skip=None, begin_again=None):
        super().__init__(invocation, skip, begin_again)
        self.wanted, self.compiled = [], {}
        """(place, module, name) of what is imported by its name; trees by their files."""

    def place(self):
        return "%s line %d" % (_shown(self.file), self.line)

    def _read_script(self):
        if self.invocation.kind == "script" and not os.path.exists(self.invocation.target):
            raise Wrong("%s: No such file or directory" % _shown(self.invocation.target))
        try:
            for tree, package in self._sources():
                self._walk(tree.body, reading.Names(), package, True)
        except early.Stopped as stop:
            self.notes.append(str(stop))
        for tree in list(self.compiled.values()):
            self._compile_imports(tree)
        self.check_names()

    def _parse(self, source, name):
        try:
            tree = super()._parse(source, name)
            compile(tree, name, "exec", dont_inherit=True)  # what only the compiler sees: a return outside a function
        except SyntaxError as error:
            where = "%s line %s" % (_shown(name), error.lineno) if error.lineno else _shown(name)
            raise Wrong("%s: %s: %s" % (where, type(error).__name__, error.msg)) from None
        except ValueError as error:  # null bytes
            raise Wrong("%s: %s" % (_shown(name), error)) from None
        self.compiled[name] = tree
        return tree

    def _try(self, node, names, package, is_main):
        """The script may have an answer to whatever is wrong there."""
        before = len(self.wanted)
        try:
            super()._try(node, names, package, is_main)
        except (Wrong, ImportError):
            raise early.Stopped("line %d: an import that may fail" % node.lineno) from None
        finally:
            del self.wanted[before:]

    def _import_from(self, node, names, package):
        place = self.place()
        super()._import_from(node, names, package)
        dotted = node.module or ""
        if node.level:
            parts = (package or "").split(".")
            dotted = ".".join(parts[: len(parts) - node.level + 1] + ([dotted] if dotted else []))
        if dotted != "__main__":
            self.wanted += [(place, dotted, alias.name) for alias in node.names if alias.name != "*"]

    def _compile_imports(self, tree):
        """Of what is imported without a condition, below what could not be understood."""
        for node in tree.body:
            if isinstance(node, ast.Raise):
                return
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._compile(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._compile(node.module)

    def _compile(self, dotted):
        top = dotted.partition(".")[0]
        spec = None if top in sys.builtin_module_names else self._find(top, None)
        if spec is None or not self.is_local(top, spec):
            return
        for _, found in self._chain(dotted):
            if found.has_location and found.origin.endswith(".py") and found.origin not in self.compiled:
                self._compile_imports(self._tree_of(found))

    def may_have_made_it(self):
        """Whether anything was called before the import that fails, which may have set a path or written a module."""
        last = dict(self.above, **{self.file: self.line})
        for path, tree in self.compiled.items():
            for node in tree.body:
                is_above = node.lineno < last.get(path, node.lineno + 1)
                if is_above and not isinstance(node, reading.DEFINITIONS) and any(map(_calls, ast.walk(node))):
                    return True
        return False

    def check_names(self):
        """The early imports are done: is in a module what was imported from it by its name?"""
        for place, dotted, name in self.wanted:
            if not self._has(dotted, name):
                raise Wrong("%s: ImportError: cannot import name %r from %r" % (place, name, dotted))

    def _has(self, dotted, name):
        """True too where that cannot be said."""
        chain = list(self._chain(dotted + "." + name))
        if chain and chain[-1][0] == dotted + "." + name:
            return True
        if not chain or chain[-1][0] != dotted:
            return True
        spec = chain[-1][1]
        if not self.is_local(dotted.partition(".")[0], chain[0][1]):
            module = sys.modules.get(dotted)
            return module is None or _has_attribute(module, name)
        tree = self.compiled.get(spec.origin)
        return tree is None or any(_sets_by_name(each, name) for each in self._trees) or _binds(tree, name)


def _calls(node):
    """But for what many scripts begin with: warnings, logging, an environment variable."""
    if not isinstance(node, ast.Call):
        return False
    root = node.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return not (isinstance(root, ast.Name) and root.id in ("warnings", "logging"))


def _has_attribute(module, name):
    try:
        getattr(module, name)
        return True
    except AttributeError:
        return False
    except Exception:  # it is made when it is asked for, and what came of that is the ranks' to say
        return True


DYNAMIC = ("setattr", "globals", "vars", "exec", "eval", "__dict__", "__getattr__", "modules")


def _sets_by_name(tree, name):
    """Does it set such an attribute of something, or in a way that nobody can read?"""
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(tree)
    )


def _binds(tree, name):
    """Whether anything in a module may bind that name, wherever it stands."""
    return name.startswith("__") or any(_binds_here(node, name) for node in ast.walk(tree))


def _binds_here(node, name):
    if isinstance(node, ast.Name):
        return node.id in DYNAMIC or (node.id == name and not isinstance(node.ctx, ast.Load))
    if isinstance(node, ast.Attribute):
        return node.attr in DYNAMIC
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any(alias.name == "*" or (alias.asname or alias.name.partition(".")[0]) == name for alias in node.names)
    found = (getattr(node, "name", None), getattr(node, "rest", None))  # def, class, except … as, match
    return name in found or "__getattr__" in found


def _shown(path):
    """As the user would name it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
