"""Follows the events and the status of the job that this command hosts, from separate threads.

The event loop that hosts the job must never wait for a terminal, so all writing happens on other threads. If the master
is killed, the connection ends; the follower continues with the next master after the last event that it logged.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outrider.cli.client import Master
from outrider.cli.documents import saved_events
from outrider.cli.errors import UserError
from outrider.cli.run.log import EventLog
from outrider.cli.run.progress_line import Progress
from outrider.cli.run.terminal import Screen

AGAIN_SECONDS = 0.1
PROGRESS_SECONDS = 1.0


class Follower:
    """Logs events as they come until it is closed, and then those that were written and not logged yet."""

    def __init__(
        self,
        folder: Path,
        log: EventLog,
        screen: Screen,
        progress: Progress | None = None,
        progress_seconds: float = PROGRESS_SECONDS,
    ) -> None:
        self._master = Master(folder)
        self._job = folder.name
        self._log = log
        self._screen = screen
        self._progress = progress
        self._pause = progress_seconds
        self._began = time.monotonic()
        self._closing = threading.Event()
        self._open: list[socket.socket] = []
        jobs: list[Callable[[], None]] = [self._follow] + ([] if progress is None else [self._show_progress])
        self._threads = [threading.Thread(target=each, daemon=True) for each in jobs]

    def start(self) -> None:
        """Start to follow; the master may still be starting."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop, after all events that the job wrote have been logged."""
        self._closing.set()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        self._screen.progress("")
        for event in saved_events(self._job):
            self._log.log(event)

    def _follow(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(UserError):
                for event in self._master.follow(self._log.last, self._open):
                    self._log.log(event)
                    if self._progress is not None:
                        self._progress.event(event)
            self._open.clear()
            self._closing.wait(AGAIN_SECONDS)

    def _show_progress(self) -> None:
        """Keep a progress line on a terminal; elsewhere log only what a job without a step is waiting for."""
        assert self._progress is not None
        while not self._closing.wait(self._pause):
            with contextlib.suppress(UserError):
                status: dict[str, Any] = self._master.status()
                elapsed = time.monotonic() - self._began
                if self._screen.is_terminal:
                    self._screen.progress(self._progress.line(status, elapsed, datetime.now(UTC)))
                elif words := self._progress.words(status, elapsed):
                    self._screen.say(f"outrider: {words}")
