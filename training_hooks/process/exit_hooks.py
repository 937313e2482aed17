"""Runs work before a process ends, even by os._exit or exec, which run no atexit handlers and end all threads.

Many scripts end by os._exit(0) because the interpreter's end would hang. Such a script has finished its job, but
without this its last save would exist in memory only.
"""

import atexit
import functools
import os

_promised = []
"""(pid, work): a forked child has no work of its own."""


def before(work):
    """Runs `work()` at the interpreter's end, at os._exit(0) and before exec. If it fails, the process still ends."""
    if not _promised:
        for name in ("_exit", "execv", "execve"):
            setattr(os, name, _behind(getattr(os, name)))
    _promised.append((os.getpid(), work))
    atexit.register(work)


def _behind(leave):
    @functools.wraps(leave)
    def leaving(*args, **kwargs):
        if leave.__name__ != "_exit" or args == (0,) or kwargs == {"status": 0}:
            _keep_promises()
        return leave(*args, **kwargs)

    return leaving


def _keep_promises():
    for pid, work in _promised:
        if pid == os.getpid():
            try:
                work()
            except Exception:  # the process ends in any case
                pass
