"""Decides once, after the imports, whether this process may be forked repeatedly.

Threads do not survive a fork, and locks that they held stay locked for ever; a device's context is invalid in a child.
OpenBLAS's pool ends at a fork (by its own handler), an OpenMP pool does not. So a throw-away child is forked first, and
the threads are counted then.
"""

import os
import sys
import threading
import warnings

from ..process import tree


def end_pools():
    """Ends thread pools that end at a fork. From 3.12 Python warns about a fork beside threads; this child does
    nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    os.waitpid(pid, 0)


def why_not():
    """The reason why this process must not be a template, or ""."""
    end_pools()
    tasks = len(os.listdir("/proc/self/task"))
    named = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if tasks > 1 or named:
        count = max(tasks, len(named) + 1) - 1
        return "%d thread%s in it (%s)" % (
            count,
            " runs" if count == 1 else "s run",
            ", ".join(named) or "not Python's",
        )
    if tree.children(os.getpid()):
        return "it has started processes"
    return _device()


def _device():
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if target.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/accel", "/dev/davinci")):
            return "it has opened " + target
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and hasattr(cuda, "is_initialized") and cuda.is_initialized():
        return "CUDA is initialised in it"
    return ""
