"""Ties the life of a process to another's, so that nothing of a job outlives the command that owns it.

Two ropes, because each has a gap. The *lifeline* is a pipe whose write end only the owner holds: the kernel closes it
however the owner dies, and every reader sees the end of file. *PDEATHSIG* kills a child with its parent thread even
where the child is too busy to read, but is lost over a setuid exec and is not inherited by grandchildren.
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
    """Calls `on_lost` once, when the write end of the pipe is closed by whoever holds it. Bytes in it are ignored."""
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
            pass  # a descriptor that cannot be read is no lifeline any more: the safe reading is that it is lost
        loop.remove_reader(descriptor)
        on_lost()

    loop.add_reader(descriptor, readable)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Has the kernel send this process a signal when its parent dies; ends at once where `parent` is gone already."""
    _prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Makes orphans among this process's descendants its own children, so that it can reap them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")
