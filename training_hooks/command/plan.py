"""Reads a command, without running any of it, and decides how it will be supervised.

The launcher calls `plan` for the container's command. In doubt a process is left alone: a wrong guess would make a
waiting template of pip or of a preprocessing script.
"""

import os
import re
import shutil

from . import invocation
from .shell_parser import SHELLS, flags_inside, line_of, scripts_in
from .torchrun_args import Flags, inner_flags, is_python, torch_arguments

__all__ = ["Flags", "Plan", "flags_inside", "inner_flags", "plan"]

WRAPPERS = (
    "env", "nice", "ionice", "numactl", "taskset", "tini", "dumb-init", "time", "stdbuf", "setpriv", "gosu", "su-exec",
    "nohup", "uv", "poetry", "pipenv", "conda", "micromamba", "pdm", "hatch",
)  # fmt: skip
"""Commands that run the rest of their arguments unchanged, once."""
MENTION = re.compile(
    r"\btorchrun\b|\baccelerate\s+launch\b|torch\.distributed\.(run|launch)\b|\bpy(thon|py)[\d.]*[\"']?\s[^;&|\n]*?(\.py\b|-m\s)"
)
OTHER_LAUNCHERS = re.compile(r"\b(deepspeed|horovodrun|mpirun|mpiexec|srun)\b")
SCRIPT_HEAD = 1 << 16


class Plan:
    """`kind`: python (becomes the template in place), takeover (torchrun: its script becomes the template), watch (runs
    at once, a template is expected inside), command (restarted in every generation). `argv` is the command with its
    shebang expanded; `mode` is the expected supervision mode."""

    def __init__(self, kind, reason, argv, script=None, module=None, inner=None):
        self.kind, self.reason, self.argv = kind, reason, argv
        self.script, self.module, self.inner = script, module, inner
        self.mode = "relaunch" if kind == "command" else "fork"

    def __repr__(self):
        return "Plan(%r, %r, %r)" % (self.kind, self.reason, self.argv)


def plan(argv, environ=None, deep=True):
    """The Plan for a command. Files are read (`#!`, a shell script's text), never run."""
    environ = os.environ if environ is None else environ
    argv = list(argv)
    name = os.path.basename(argv[0])
    if torch_arguments(argv) is not None:
        return _torch(argv, environ)
    if name == "accelerate":
        return _accelerate(argv, argv[1:])
    if is_python(name):
        return _python(argv)
    if name in SHELLS:
        return _shell(argv, environ)
    if name in WRAPPERS:
        return _wrapped(argv, environ)
    if deep:
        return _by_file(argv, environ)
    return Plan("command", "%s is not Python: the command is restarted in each generation" % name, argv)


def _torch(argv, environ):
    found = inner_flags(argv, environ)
    if found is None:
        return Plan("watch", "the flags of torchrun can only be evaluated by torchrun itself", argv)
    name = found.script
    if found.run_path:
        return Plan("watch", "--run-path runs %s as a function inside torchrun, which cannot be replaced" % name, argv)
    where = {"module": name} if found.module else {"script": name}
    return Plan("takeover", "torchrun runs %s" % name, argv, inner=found, **where)


def _accelerate(argv, arguments):
    if arguments[:1] == ["launch"]:
        return Plan("watch", "accelerate launch decides itself how it runs its script", argv)
    return Plan("command", "accelerate %s does not train" % " ".join(arguments[:1]), argv)


def _python(argv):
    called = invocation.parse(argv)
    letters = "".join(option[1:] for option in called.options if option[:1] == "-" and option[:2] != "--")
    closed = [letter for letter in "IES" if letter in re.sub("[WXQ].*", "", letters)]
    if closed:
        return Plan("command", "Python is called with -%s, so no hook can be loaded" % closed[0], argv)
    name = os.path.basename(called.target)
    if called.kind == "module" and called.target in (
        "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
    ):
        return Plan("watch", "accelerate launch decides itself how it runs its script", argv)
    if called.kind == "script" and name == "accelerate":
        return _accelerate(argv, called.arguments)
    if name == "deepspeed" or called.target.startswith("deepspeed.launcher"):
        return Plan("command", "DeepSpeed's launcher starts its ranks itself", argv)
    if called.kind == "script":
        return Plan("python", "the container's command is the script %s" % called.target, argv, script=called.target)
    if called.kind == "module":
        return Plan("python", "the container's command is the module %s" % called.target, argv, module=called.target)
    return Plan("command", "Python is given its program as text, not as a script", argv)


def _shell(argv, environ):
    """Decides for a shell with `-c` or a script file."""
    line, words = line_of(argv)
    if line is not None:
        return _by_text(argv, line, "the shell's line", environ)
    what = "the shell script %s" % words[0] if words else "the shell"
    return _by_text(argv, _head(words[0]) if words else "", what, environ)


def _by_text(argv, text, what, environ):
    text = re.sub(r"(?m)^[^\S\n]*#.*$", "", text).replace("\\\n", " ")
    if OTHER_LAUNCHERS.search(text):
        return Plan("command", "%s uses a launcher of its own: it is restarted in each generation" % what, argv)
    if not MENTION.search(text):
        return Plan("command", "%s names no Python trainer: it is restarted in each generation" % what, argv)
    scripts = () if environ.get("OUTRIDER_SCRIPT") else scripts_in(text)
    if scripts and not _uses_library(scripts):
        reason = "%s runs no script that uses a library for several processes: it is restarted in each generation"
        return Plan("command", reason % what, argv)
    return Plan("watch", "%s starts a Python trainer" % what, argv)


def _uses_library(scripts):
    from . import trainer_detection

    return any(trainer_detection.library_used(path) for path in scripts)


def _wrapped(argv, environ):
    """The program inside a wrapper is a process of its own: it is watched, and its script is the trainer."""
    for index in range(1, len(argv)):
        name = os.path.basename(argv[index])
        if is_python(name) or name in SHELLS or name in ("torchrun", "accelerate", "deepspeed"):
            inside = plan(argv[index:], environ, deep=False)
            kind = "command" if inside.kind == "command" else "watch"
            return Plan(
                kind, "inside %s: %s" % (argv[0], inside.reason), argv, inside.script, inside.module, inside.inner
            )
    return Plan("command", "%s runs no Python that can be seen" % argv[0], argv)


def _by_file(argv, environ):
    """Decides for a program by its `#!` line."""
    words = shebang(argv[0], environ)
    if not words:
        return Plan("command", "%s is not Python: the command is restarted in each generation" % argv[0], argv)
    expanded, path = words + argv[1:], words[-1]
    name = os.path.basename(words[0])
    if is_python(name):
        return plan(expanded, environ, deep=False)
    if name in SHELLS:
        return _by_text(argv, _head(path), "the shell script %s" % argv[0], environ)
    return Plan("command", "%s is run by %s" % (argv[0], name), argv)


def shebang(program, environ):
    """The words of a program's `#!` line followed by its path, or [] if it has none."""
    path = shutil.which(program, path=environ.get("PATH", os.defpath)) or program
    words = _interpreter(_head(path))
    return [*words, path] if words else []


def _interpreter(head):
    """The words of a `#!` line, without `/usr/bin/env`."""
    if not head.startswith("#!"):
        return []
    words = head[2:].split("\n", 1)[0].split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if word != "-S" and "=" not in word]
    return words


def _head(path):
    try:
        with open(path, "rb") as file:
            return file.read(SCRIPT_HEAD).decode("utf-8", "replace")
    except OSError:
        return ""
