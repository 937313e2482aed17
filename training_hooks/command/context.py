"""Shared by launcher, supervisor and replaced torchrun: log a line, become a command, become the launcher."""

import json
import os
import sys
import time

LAUNCHER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "launcher", "main.py")
OURS = ("OUTRIDER_TEMPLATE", "OUTRIDER_INNER", "OUTRIDER_WORKER")


def log(text):
    try:
        os.write(2, ("outrider-launch: %s\n" % text).encode())
    except OSError:
        pass


def execute(argv, environ, why_not=""):
    """Becomes the command, as a shell would: exit code 127 if there is none, 126 if it cannot be run. `why_not` is the
    file for a worker process's error, or ""."""
    try:
        os.execvpe(argv[0], argv, environ)
    except OSError as error:
        sentence = "%s: %s" % (argv[0], error.strerror)
        log(sentence)
        if why_not:
            _note(why_not, type(error).__name__, sentence)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _note(path, kind, sentence):
    from ..process import exception_report

    found = {"type": kind, "message": sentence, "frame": "", "traceback": "", "in_import": True}
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        exception_report.write(path, dict(found, at=time.monotonic(), pid=os.getpid()))
    except OSError:
        pass


def each_rank(argv, reason, nproc=None, max_restarts=None, macros=False, original=None, environ=None):
    """Replaces this process by a launcher that runs argv once per local rank: for a template that cannot be one, and
    for a replaced torchrun whose ranks are not Python. `original` is the command that runs if no sidecar comes."""
    settings = {"reason": reason, "nproc": nproc, "max_restarts": max_restarts, "macros": macros, "original": original}
    environ = dict(os.environ if environ is None else environ, OUTRIDER_INNER=json.dumps(settings))
    execute([sys.executable, "-I", "-S", LAUNCHER, "--each-rank", "--", *list(argv)], environ)


def take_over(argv, environ, reason):
    """The same for a template that cannot be one, with the settings that it has."""
    from . import exec_env

    settings = exec_env.taken()
    macros, original = bool(settings.get("macros")), settings.get("original")
    each_rank(argv, reason, settings.get("nproc"), settings.get("max_restarts"), macros, original, environ)
