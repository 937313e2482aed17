"""Unnamed namespaces, created by the process that holds them and entered by children of this process.

A child that is forked into another pid namespace is still a child of this process: its pid here, its signals, its end,
and its parent-death signal are as for any child. A process cannot change its own pid namespace, only that of its future
children; so the thread switches it just for the fork. The child enters the other namespaces by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.master.local.spawning import Child, Place

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
"""The flags CLONE_* of include/uapi/linux/sched.h."""
PATIENCE = 10.0
"""Time-out in seconds for the creation and setup of a namespace, which takes some 30 ms on an idle machine."""
TOOL_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"

_libc = ctypes.CDLL(None, use_errno=True)


class IsolationError(OSError):
    """Members cannot be isolated here; the message, for the user, says why."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Starts a child in the namespaces of a process, and in cgroups."""

    holder: int
    """Pidfd of the process that holds the namespaces."""
    groups: tuple[int, ...] = ()
    """Descriptors of the cgroups' `cgroup.procs` files."""

    @contextlib.contextmanager
    def births(self) -> Iterator[None]:
        with _born_in(lambda: _call(_libc.setns, self.holder, NEWPID)):
            yield

    def enter(self) -> None:
        _call(_libc.setns, self.holder, NEWNET | NEWNS | NEWIPC | NEWUTS)
        for group in self.groups:
            os.write(group, b"0")


@dataclass(frozen=True, slots=True)
class NewPids:
    """Starts a child as pid 1 of a new pid namespace, whose processes all end with it."""

    @contextlib.contextmanager
    def births(self) -> Iterator[None]:
        with _born_in(lambda: _call(_libc.unshare, NEWPID)):
            yield

    def enter(self) -> None:
        """Does nothing: the child is already in the namespace."""


@contextlib.contextmanager
def _born_in(choose: Callable[[], None]) -> Iterator[None]:
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        choose()
        try:
            yield
        finally:
            _call(_libc.setns, own, NEWPID)
    finally:
        os.close(own)


def _call(function: Callable[..., int], *arguments: int) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def furnished(
    namespaces: tuple[str, ...],
    script: str,
    variables: Mapping[str, str],
    *,
    parent_death_signal: signal.Signals,
    stdin: int = subprocess.DEVNULL,
    place: Place | None = None,
) -> Child:
    """Starts a shell in new namespaces (flags of `unshare`); returns once its script has printed `ready` and closed its
    output.

    Raises IsolationError with the last line that was printed instead.
    """
    reading, writing = os.pipe()
    try:
        child = Child(
            ("unshare", *namespaces, "sh", "-ec", script),
            {"PATH": TOOL_PATH, **variables},
            Path("/"),
            lambda _child, _code: None,
            parent_death_signal=parent_death_signal,
            out=writing,
            err=writing,
            stdin=stdin,
            place=place,
        )
        os.close(writing)
        writing = -1
        lines = _lines(reading)
    finally:
        for descriptor in {reading, writing} - {-1}:
            os.close(descriptor)
    if lines[-1:] != ["ready"]:
        child.send(signal.SIGKILL)
        raise IsolationError(lines[-1] if lines else f"the setup script printed nothing within {PATIENCE:g} s")
    return child


def _lines(reading: int) -> list[str]:
    """The lines until the end of file or the time-out."""
    deadline, text = time.monotonic() + PATIENCE, b""
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(reading, 4096)
        if not more:
            break
        text += more
    return [line for line in text.decode(errors="replace").splitlines() if line.strip()]
