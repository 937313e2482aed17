"""Namespaces without a name: made by the process that holds them, entered by children of this one.

A child that is born in another pid namespace is a child of this process all the same: its pid here, its signals, its
end and the signal that it gets when we die are those of any child. So only a thread's next children are sent there, for
the moment of their fork (a pid namespace is that of a process's children, never its own); the rest they enter by
themselves.
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
"""CLONE_* of include/uapi/linux/sched.h."""
PATIENCE = 10.0
"""Seconds for a namespace to be made and furnished: it takes some 30 ms on an idle machine."""
TOOL_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"

_libc = ctypes.CDLL(None, use_errno=True)


class IsolationError(OSError):
    """Members cannot be isolated here; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Into the namespaces of a process, and into cgroups."""

    holder: int
    """A pidfd."""
    groups: tuple[int, ...] = ()
    """Descriptors of cgroup.procs."""

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
    """The child is pid 1 of a new pid namespace, and ends with all that is in it."""

    @contextlib.contextmanager
    def births(self) -> Iterator[None]:
        with _born_in(lambda: _call(_libc.unshare, NEWPID)):
            yield

    def enter(self) -> None:
        """It is there."""


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
    """A shell in new namespaces (flags of `unshare`), once its script has said `ready` and closed its output.

    IsolationError with the last line that was said instead.
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
        said = _said(reading)
    finally:
        for descriptor in {reading, writing} - {-1}:
            os.close(descriptor)
    if said[-1:] != ["ready"]:
        child.send(signal.SIGKILL)
        raise IsolationError(said[-1] if said else f"what prepares it said nothing in {PATIENCE:g} s")
    return child


def _said(reading: int) -> list[str]:
    """Lines until the end of file, or until the time is over."""
    deadline, text = time.monotonic() + PATIENCE, b""
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(reading, 4096)
        if not more:
            break
        text += more
    return [line for line in text.decode(errors="replace").splitlines() if line.strip()]
