"""What `outrider-launch` runs to decide: becomes the template in place, or stays as the supervisor of the command.

Run as a file by an isolated Python (`-I -S`), so it finds its own package by its path. `--each-rank`
comes from a template that refused to be one, or from a takeover whose ranks are no Python; the command follows `--`.
"""

import os
import sys

if __name__ == "__main__":
    import importlib.util

    _folder = os.path.dirname(os.path.abspath(__file__))
    _spec = importlib.util.spec_from_file_location(
        "_outrider_hooks", os.path.join(_folder, "__init__.py"), submodule_search_locations=[_folder]
    )
    sys.modules["_outrider_hooks"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["_outrider_hooks"])
    importlib.import_module("_outrider_hooks.launcher").main(sys.argv[1:])

OURS = ("OUTRIDER_TEMPLATE", "OUTRIDER_INNER", "OUTRIDER_WORKER")


def say(text):
    try:
        os.write(2, ("outrider-launch: %s\n" % text).encode())
    except OSError:
        pass


def execute(argv, environ, why_not=""):
    """Becomes the command, as a shell would: 127 where there is none, 126 where it cannot be run. `why_not` is the file
    for a worker process's error, where it is one."""
    try:
        os.execvpe(argv[0], argv, environ)
    except OSError as error:
        sentence = "%s: %s" % (argv[0], error.strerror)
        say(sentence)
        if why_not:
            _note(why_not, type(error).__name__, sentence)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _note(path, kind, sentence):
    import time

    from . import errors

    found = {"type": kind, "message": sentence, "frame": "", "traceback": "", "in_import": True}
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        errors.write(path, dict(found, at=time.monotonic(), pid=os.getpid()))
    except OSError:
        pass


def main(arguments):
    environ = {name: value for name, value in os.environ.items() if name not in OURS}
    if arguments[:1] == ["--each-rank"]:
        from . import handover, supervisor

        told = handover.take()
        supervisor.supervise(arguments[2:], environ, told, True)
        return
    from . import command, faults

    faults.arm(environ)
    decided = command.plan(arguments, environ)
    if decided.kind == "python":
        _become_template(decided.argv, environ, decided.reason)
    elif decided.kind == "takeover":
        _take_over(decided, environ)
    else:
        _supervise(decided, environ)


def _become_template(argv, environ, reason, **told):
    from . import handover

    execute(argv, handover.mark(environ, reason, **told))


def _take_over(decided, environ):
    """torchrun's flags are known without it, so its own start (2 to 3 s of imports) is spared where they say it all;
    else it is run, and the hook inside it takes over."""
    from . import takeover

    takeover.without_torchrun(decided.argv, decided.inner, environ)
    _supervise(decided, environ)


def _supervise(decided, environ):
    from . import supervisor

    if decided.kind != "command" and decided.script and "OUTRIDER_SCRIPT" not in environ and not decided.inner:
        environ["OUTRIDER_SCRIPT"] = decided.script
    told = {"reason": decided.reason, "watch": decided.kind != "command"}
    supervisor.supervise(decided.argv, environ, told, environ.get("OUTRIDER_PER_RANK") == "1")


def each_rank(argv, reason, nproc=None, max_restarts=None, macros=False, original=None, environ=None):
    """Replaces this process by a launcher that runs argv once per local rank: for a template that must not be one, and
    for a takeover of something that is no Python. `original` is what runs where no sidecar comes."""
    import json

    told = {"reason": reason, "nproc": nproc, "max_restarts": max_restarts, "macros": macros, "original": original}
    environ = dict(os.environ if environ is None else environ, OUTRIDER_INNER=json.dumps(told))
    execute([sys.executable, "-I", "-S", os.path.abspath(__file__), "--each-rank", "--", *list(argv)], environ)


def take_over(argv, environ, reason):
    """The same for a template that cannot be one, with what it was handed."""
    from . import handover

    told = handover.taken()
    macros = bool(told.get("macros"))
    each_rank(argv, reason, told.get("nproc"), told.get("max_restarts"), macros, told.get("original"), environ)
