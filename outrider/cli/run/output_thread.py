"""Writes the ranks' output to the terminal from a thread, so that hosting the job never waits for a terminal.

A stopped terminal (Ctrl-S, a pager) would otherwise also stop the restart of ranks that die meanwhile. Up to 64 MiB of
output wait. Lines beyond that are counted and not shown; they stay readable in trainer.log.
"""

from __future__ import annotations

import queue
import threading

from outrider.cli.run.terminal import Screen

MOST_BYTES = 64 << 20


class Writer:
    """A queue of output with a thread that writes it: `put` never blocks, `close` writes the rest."""

    def __init__(self, screen: Screen, most_bytes: int = MOST_BYTES) -> None:
        self._screen = screen
        self._most = most_bytes
        self._waiting = 0
        self._dropped = 0
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, stream: int, data: bytes) -> None:
        """Queue bytes for stream 1 (standard output) or 2 (standard error)."""
        with self._lock:
            if self._waiting + len(data) > self._most:
                self._dropped += 1
                return
            self._waiting += len(data)
        self._queue.put((stream, data))

    def close(self, patience: float = 5.0) -> None:
        """Write the rest; wait at most `patience` seconds for a terminal that accepts nothing."""
        self._queue.put(None)
        self._thread.join(patience)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._screen.ranks(*item)
            with self._lock:
                self._waiting -= len(item[1])
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self._screen.say(
                    f"outrider: {dropped:,} lines of the ranks were not shown: the terminal was too slow", "yellow"
                )
