"""Hands what the ranks write to the terminal from a thread, so that the node never waits for a terminal.

A terminal that is stopped (Ctrl-S, a pager) would otherwise stop the node, and with it the restart of whatever dies
meanwhile. Up to 64 MiB wait; what comes beyond that is counted and left out, and stays readable in trainer.log.
"""

from __future__ import annotations

import queue
import threading

from outrider.cli.run.terminal import Screen

MOST_BYTES = 64 << 20


class Writer:
    """`put` never blocks; `close` writes what waits."""

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
        """Bytes for 1 (standard output) or 2."""
        with self._lock:
            if self._waiting + len(data) > self._most:
                self._dropped += 1
                return
            self._waiting += len(data)
        self._queue.put((stream, data))

    def close(self, patience: float = 5.0) -> None:
        """Write what waits; a terminal that takes nothing is not waited for longer than `patience` seconds."""
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
                    f"outrider: {dropped:,} lines of the ranks came faster than they could be shown", "yellow"
                )
