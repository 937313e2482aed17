"""Records the exception that ends a worker process, as the cause of the fault; Python then prints it as usual.

The record is written before the process closes its connections, so before another rank can fail because of it. If a
process begins to exit without an exception, that moment is recorded too. So the first failed rank is known, even if it
takes long to exit.
"""

import atexit
import json
import os
import sys
import time
import traceback

LONGEST = 8192
"""Most bytes of a traceback and of a message, since an exception may contain a whole batch."""


def shortened(text, longest=LONGEST):
    """The two ends of a text that has more bytes than `longest`."""
    data = text.encode("utf-8", "replace")
    if len(data) <= longest:
        return text
    tail = longest * 2 // 3
    kept = data[: longest - tail - 8], data[-tail:]
    return "\n...\n".join(part.decode("utf-8", "ignore") for part in kept)


def is_in_import(kind, frames, steps):
    """Whether the exception was raised before the first step, and not inside a call made by the script's top level: a
    missing module, a syntax error, an undefined name. Every member would fail the same way, again and again."""
    if steps:
        return False
    if issubclass(kind, (ImportError, SyntaxError)):
        return True
    names = [frame.name for frame in frames]
    inner = names[1] if len(names) > 1 else "<module>"
    return inner == "<module>" or "importlib" in (frames[1].filename if len(frames) > 1 else "")


def describe(kind, value, trace, steps=0):
    """The `error` field of an `exited` message."""
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
    """The text of an exception. A user's __str__ may fail; Python still prints the traceback."""
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
    """Runs before the current excepthook; `steps()` returns the number of steps made. A child forked from this process
    (a DataLoader worker) prints its own error and records none."""
    then, owner = sys.excepthook, os.getpid()

    def excepthook(kind, value, trace):
        at = time.monotonic()
        try:
            if os.getpid() == owner and not issubclass(kind, KeyboardInterrupt):
                write(path, dict(describe(kind, value, trace, steps()), at=at, pid=owner))
        except Exception:  # the script's own error must be printed, even if the report fails
            pass
        then(kind, value, trace)

    def leave():
        at = time.monotonic()
        try:
            if os.getpid() == owner and not os.path.exists(path):
                write(path, {"at": at, "pid": owner})
        except Exception:  # the process exits in any case
            pass

    sys.excepthook = excepthook
    atexit.register(leave)


def last_word(path, pid):
    """(time of the last exception or of the begin of the exit, whether it was an exception); (None, False) before."""
    try:
        with open(path) as file:
            found = json.load(file)
        return (float(found["at"]), "type" in found) if found["pid"] == pid else (None, False)
    except (OSError, ValueError, KeyError, TypeError):
        return None, False


def read(path, torch_path=""):
    """The recorded error, by this hook or by torch's `record`; None if there is none."""
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


def from_output(last_lines):
    """The error of a process without a known exception: its last output may show the reason."""
    return {"type": "", "message": "", "frame": "", "traceback": last_lines} if last_lines else None


def unreadable_script(path):
    """The error of exit code 2 without an exception: Python could not open the script."""
    return {
        "type": "FileNotFoundError",
        "message": "can't open file %r" % path,
        "frame": "",
        "traceback": "",
        "in_import": True,
    }


def missing_module(name):
    """The error of exit code 1 without an exception: Python found no module of this name."""
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
