"""Starts processes of a job and hears of their end, each in a session of its own.

What a child inherits is said here and nowhere else: three standard descriptors, those that are passed on purpose, and a
signal that the kernel sends when its parent dies. The end is read from a pidfd, so that no other waiting in this
process (there is none in ours, but the node lives inside a command) can take it away.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

PR_SET_PDEATHSIG = 1
PF_EXITING = 0x4
"""A flag of a task in /proc/<pid>/stat (include/linux/sched.h)."""
_prctl = ctypes.CDLL(None, use_errno=True).prctl
"""Looked up once: between fork and exec of a process with threads, nothing may be loaded."""


class Place(Protocol):
    """Where a child is born that is not to live beside us."""

    def births(self) -> AbstractContextManager[None]:
        """Around its fork."""

    def enter(self) -> None:
        """In the child, before its program."""


class Child:
    """One process. `on_end` is called once with its exit code, negative for a signal as in `subprocess`."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        on_end: Callable[[Child, int], None],
        *,
        parent_death_signal: signal.Signals,
        out: int,
        err: int,
        stdin: int = subprocess.DEVNULL,
        keep_open: tuple[int, ...] = (),
        place: Place | None = None,
    ) -> None:
        """OSError where the command cannot be started."""
        parent = os.getpid() if place is None else 0  # nobody outside of its pid namespace has a pid in it

        def begin() -> None:
            if place is not None:
                place.enter()
                os.chdir(folder)
            _prctl(PR_SET_PDEATHSIG, int(parent_death_signal), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        self._on_end = on_end
        try:
            with nullcontext() if place is None else place.births():
                self._process = subprocess.Popen(
                    list(command),
                    env=dict(environment),
                    cwd=folder,
                    stdin=stdin,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    pass_fds=keep_open,
                    preexec_fn=begin,
                )
        except subprocess.SubprocessError as error:  # all that is said of an exception in the child
            raise OSError("its place, or its folder there, is gone") from error
        self.pid = self._process.pid
        self._descriptor = os.pidfd_open(self.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._ended)

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.returncode

    @property
    def is_running(self) -> bool:
        """Asks the kernel: its end may not have been told yet, and a large process takes long to be taken down."""
        return self._process.returncode is None and not _is_exiting(self.pid) and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signals it where it still runs; it is our child, so its pid is its own until it is reaped."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    def _ended(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._on_end(self, self._process.wait())


def _is_exiting(pid: int) -> bool:
    """Whether the kernel is taking the process down, or has a SIGKILL for it that it did not deliver yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return True
    pending = next((int(line[7:], 16) for line in status.splitlines() if line.startswith(b"ShdPnd:")), 0)
    return bool(int(stat[6]) & PF_EXITING) or bool(pending & 1 << (signal.SIGKILL - 1))


def exit_code_of(code: int) -> int:
    """As a shell would say it: 128 + the number for a signal."""
    return code if code >= 0 else 128 - code
