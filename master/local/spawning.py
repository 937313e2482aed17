"""Starts processes of a job, each in its own session, and reports their ends.

A child inherits only three standard descriptors, those that are passed on purpose, and a signal that the kernel sends
when its parent dies. Its end is read from a pidfd, so that no other wait in this process can consume it (our code has
none, but the node runs inside another command).
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
"""Flag of an exiting task in /proc/<pid>/stat (include/linux/sched.h)."""
_prctl = ctypes.CDLL(None, use_errno=True).prctl
"""`prctl`, resolved once: between fork and exec of a process with threads, nothing may be loaded."""


class Place(Protocol):
    """Namespaces and cgroups in which a child is started instead of the host's."""

    def births(self) -> AbstractContextManager[None]:
        """The context in which the child is forked."""

    def enter(self) -> None:
        """Enters the place; called in the child before it runs its program."""


class Child:
    """One process. `on_end` is called once with its exit code, which is negative for a signal as in `subprocess`."""

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
        """Starts the process. Raises OSError if the command cannot be started."""
        parent = os.getpid() if place is None else 0  # a parent outside the child's pid namespace is pid 0 there

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
        except subprocess.SubprocessError as error:  # all that is known of an exception in the child
            raise OSError("its sandbox, or its folder there, no longer exists") from error
        self.pid = self._process.pid
        self._descriptor = os.pidfd_open(self.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._ended)

    @property
    def code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.returncode

    @property
    def is_running(self) -> bool:
        """Whether the process runs, by the kernel: its end may not be reported yet, and a large process ends slowly."""
        return self._process.returncode is None and not _is_exiting(self.pid) and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signals the process if it still runs; as our child, it keeps its pid until it is reaped."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    def _ended(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._on_end(self, self._process.wait())


def _is_exiting(pid: int) -> bool:
    """Whether the process is exiting in the kernel, or has a pending SIGKILL."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return True
    pending = next((int(line[7:], 16) for line in status.splitlines() if line.startswith(b"ShdPnd:")), 0)
    return bool(int(stat[6]) & PF_EXITING) or bool(pending & 1 << (signal.SIGKILL - 1))


def exit_code_of(code: int) -> int:
    """The exit code as in a shell: 128 plus the number of a signal."""
    return code if code >= 0 else 128 - code
