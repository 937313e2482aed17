"""What a process does before it ends, however it does: os._exit and exec ask nobody, and threads end with it.

A script that ends by os._exit(0), as many do where something hangs at the interpreter's end, has finished its job, and
its last save would be in memory alone.
"""

import atexit
import functools
import os

_promised = []
"""(pid, what is done): a forked child has promised nothing."""


def before(work):
    """`work()` is done at the interpreter's end, at os._exit(0) and before exec. Where it fails the process ends all
    the same."""
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
            except Exception:  # the process was to end, and does
                pass
