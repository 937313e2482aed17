"""Ends processes when the command that owns their job ends, so that nothing of the job outlives it.

There are two mechanisms, because each has a gap. The *lifeline* is a pipe whose write end only the owner holds: however
the owner dies, the kernel closes it, and every reader sees the end of file. *PDEATHSIG* kills a child with its parent
thread even if the child is too busy to read, but a setuid exec clears it and grandchildren do not inherit it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def watch_lifeline(descriptor: int, on_lost: Callable[[], None]) -> None:
    """Call `on_lost` once, when the last holder of the pipe's write end closes it. Bytes in the pipe are ignored."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    os.set_inheritable(descriptor, False)

    def readable() -> None:
        try:
            if os.read(descriptor, 4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # a descriptor that cannot be read is treated as a lost lifeline, which is the safe choice
        loop.remove_reader(descriptor)
        on_lost()

    loop.add_reader(descriptor, readable)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel signal this process when its parent dies; exit at once if `parent` is already gone."""
    _prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process, so that it can reap them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")
