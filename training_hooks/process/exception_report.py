"""Writes down the exception that ends a worker process, for the fault's reason, then lets Python print it as always.

It is written before the process closes its connections, and so before any other rank can fail in its turn; so is the
moment at which a process that raised nothing begins to leave. Whoever is slow to leave is still known as the first.
"""

import atexit
import json
import os
import sys
import time
import traceback

LONGEST = 8192
"""Bytes of a traceback, and of a message: an exception may hold a whole batch."""


def shortened(text, longest=LONGEST):
    """Both ends of a text that has more bytes than that."""
    data = text.encode("utf-8", "replace")
    if len(data) <= longest:
        return text
    tail = longest * 2 // 3
    kept = data[: longest - tail - 8], data[-tail:]
    return "\n...\n".join(part.decode("utf-8", "ignore") for part in kept)


def is_in_import(kind, frames, steps):
    """Before the first step, and not from within a call that the script's top level made: a missing module, a syntax
    error, a name that is not there. Every member would fail the same way, and again."""
    if steps:
        return False
    if issubclass(kind, (ImportError, SyntaxError)):
        return True
    names = [frame.name for frame in frames]
    inner = names[1] if len(names) > 1 else "<module>"
    return inner == "<module>" or "importlib" in (frames[1].filename if len(frames) > 1 else "")


def describe(kind, value, trace, steps=0):
    """The `error` of an `exited` line."""
    frames = [frame for frame in traceback.extract_tb(trace) if frame.filename != "<frozen runpy>"]
    deepest = frames[-1] if frames else None
    where = "%s:%d %s" % (deepest.filename, deepest.lineno, deepest.name) if deepest else ""
    if isinstance(value, SyntaxError) and value.filename:
        where = "%s:%d" % (value.filename, value.lineno or 0)
    return {
        "type": kind.__qualname__ if kind.__module__ == "builtins" else kind.__module__ + "." + kind.__qualname__,
        "message": shortened(_text(value)),
        "frame": where,
        "traceback": shortened("".join(traceback.format_exception(kind, value, trace))),
        "in_import": is_in_import(kind, frames, steps),
    }


def _text(value):
    """The user's own __str__ may fail, and Python prints the traceback all the same."""
    try:
        return str(value)
    except Exception:
        return "<unprintable %s object>" % type(value).__name__


def write(path, error):
    beside = "%s.%d" % (path, os.getpid())
    with open(beside, "w") as file:
        json.dump(error, file)
    os.replace(beside, path)


def install(path, steps):
    """Puts itself before the excepthook that is there; `steps()` says how many were made. A child forked from this
    process (a DataLoader worker) prints its own error and writes none."""
    then, owner = sys.excepthook, os.getpid()

    def excepthook(kind, value, trace):
        at = time.monotonic()
        try:
            if os.getpid() == owner and not issubclass(kind, KeyboardInterrupt):
                write(path, dict(describe(kind, value, trace, steps()), at=at, pid=owner))
        except Exception:  # the script's own error must be printed, whatever is wrong with ours
            pass
        then(kind, value, trace)

    def leave():
        at = time.monotonic()
        try:
            if os.getpid() == owner and not os.path.exists(path):
                write(path, {"at": at, "pid": owner})
        except Exception:  # it leaves all the same
            pass

    sys.excepthook = excepthook
    atexit.register(leave)


def last_word(path, pid):
    """(when the process raised its last exception or began to leave, whether it raised one); (None, False) before."""
    try:
        with open(path) as file:
            found = json.load(file)
        return (float(found["at"]), "type" in found) if found["pid"] == pid else (None, False)
    except (OSError, ValueError, KeyError, TypeError):
        return None, False


def read(path, torch_path=""):
    """What was written, by our hook or else by torch's `record`; None where neither was."""
    try:
        with open(path) as file:
            found = json.load(file)
        if "type" in found:
            return found
    except (OSError, ValueError, TypeError):
        pass
    try:
        with open(torch_path) as file:
            message = json.load(file)["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    text = message.get("message", "") if isinstance(message, dict) else str(message)
    trace = (message.get("extraInfo") or {}).get("py_callstack", "") if isinstance(message, dict) else ""
    kind = text.partition(":")[0]
    return {
        "type": kind,
        "message": text.partition(": ")[2],
        "frame": "",
        "traceback": shortened(str(trace)),
        "in_import": False,
    }


def unsaid(last_lines):
    """No exception is known: what the process wrote last may say why it ended."""
    return {"type": "", "message": "", "frame": "", "traceback": last_lines} if last_lines else None


def unreadable_script(path):
    """Python's exit code 2 without an exception: it could not open the script."""
    return {
        "type": "FileNotFoundError",
        "message": "can't open file %r" % path,
        "frame": "",
        "traceback": "",
        "in_import": True,
    }


def missing_module(name):
    """Python's exit code 1 without an exception: it found no module of this name to run."""
    return {
        "type": "ModuleNotFoundError",
        "message": "No module named %r" % name,
        "frame": "",
        "traceback": "",
        "in_import": True,
    }


def remove(*paths):
    for path in paths:
        try:
            os.unlink(path)
        except OSError:
            pass
