"""Serves agent.sock, at which this member's template or launcher announces itself, reports, and gets orders.

The hooks always reconnect, so an invalid line closes its connection, with a log line that says why. A connection of any
other process costs a descriptor for some seconds and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outrider.runtime.lines import LineConnection
from outrider.runtime.processes import is_alive
from outrider.runtime.unix import checked_path, listening_socket
from outrider.sidecar.core.events import Collected, Event, HookDisconnected, WorkerExited, WorkersStopped
from outrider.sidecar.shell import hooks_protocol
from outrider.sidecar.shell.hooks_protocol import BadLine, Line
from outrider.wire.messages.diagnostics import REHEARSAL
from outrider.wire.reader import Wrong

FIRST_LINE_SECONDS = 5.0
MOST_CONNECTIONS = 32
COLLECT_SECONDS = 5.0
REHEARSAL_SECONDS = 130.0
"""Time-out of a rehearsal in seconds; it ends itself after 120 s (`training_hooks.template.rehearsal`)."""

log = logging.getLogger("hooks")


@dataclass(slots=True)
class _Hook:
    name: str
    line: LineConnection
    pid: int = 0
    """Pid of the announced process; 0: it has not announced itself yet."""
    timer: asyncio.TimerHandle | None = None


class HooksLink:
    """`put` receives the events; `enrich` may add what only the shell knows (the steps of processes that ended)."""

    def __init__(
        self, folder: Path, grace: float, put: Callable[[Event], None], enrich: Callable[[Event], list[Event]]
    ) -> None:
        self._path = folder / "agent.sock"
        checked_path(self._path)
        self.found_a_socket = self._path.is_socket()
        """Whether an earlier sidecar served this folder."""
        self._grace = grace
        self._put = put
        self._enrich = enrich
        self._hooks: dict[str, _Hook] = {}
        self._by_line: dict[LineConnection, _Hook] = {}
        self._collecting: dict[int, asyncio.TimerHandle] = {}
        self._counter = 0
        self._server: asyncio.AbstractServer | None = None

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        listening = listening_socket(self._path, 0o666)
        self._server = await loop.create_unix_server(
            lambda: LineConnection(self._opened, self._received, self._closed), sock=listening
        )

    def close(self) -> None:
        """Closes all connections. The socket's file stays, by which the next sidecar knows that there was one."""
        if self._server is not None:
            self._server.close()
        for hook in list(self._hooks.values()):
            hook.line.close()

    def tell(self, connection: str, line: Line) -> None:
        """Sends a line. Raises ConnectionError if the connection is closed."""
        hook = self._hooks.get(connection)
        if hook is None:
            raise ConnectionError(f"connection {connection} is closed")
        hook.line.send(line)

    def refuse(self, connection: str, reason: str) -> None:
        hook = self._hooks.get(connection)
        if hook is not None:
            self._refuse(hook, reason)

    def collect(self, connection: str, order: int, what: str) -> None:
        """Requests diagnostics; Collected comes, with an error in its body if no answer comes in time."""
        self.tell(connection, {"do": "collect", "order": order, "what": what})
        loop = asyncio.get_running_loop()
        seconds = REHEARSAL_SECONDS if what == REHEARSAL else COLLECT_SECONDS
        body = f'{{"error": "no answer within {seconds:g} s"}}'
        self._collecting[order] = loop.call_later(seconds, self._collected, Collected(order, body))

    def _collected(self, event: Collected) -> None:
        timer = self._collecting.pop(event.order, None)
        if timer is not None:  # otherwise late or repeated: Collected has been put already
            timer.cancel()
            self._put(event)

    # -- connections
    def _opened(self, line: LineConnection) -> None:
        self._counter += 1
        hook = _Hook(str(self._counter), line)
        self._hooks[hook.name] = self._by_line[line] = hook
        if len(self._hooks) > MOST_CONNECTIONS:
            self._refuse(hook, f"too many connections: at most {MOST_CONNECTIONS} are allowed")
            return
        loop = asyncio.get_running_loop()
        no_announcement = f"no announcement came within {FIRST_LINE_SECONDS:g} s"
        hook.timer = loop.call_later(FIRST_LINE_SECONDS, line.close, no_announcement)

    def _received(self, connection: LineConnection, line: Line) -> None:
        hook = self._by_line[connection]
        try:
            if not hook.pid:
                self._announced(hook, line)
            else:
                self._reported(line)
        except (BadLine, Wrong) as error:
            self._refuse(hook, str(error))

    def _announced(self, hook: _Hook, line: Line) -> None:
        event = hooks_protocol.announcement(line, hook.name, hook.line.peer.pid)
        if hook.timer is not None:
            hook.timer.cancel()
        hook.pid = event.pid
        hook.line.send({"outrider": hooks_protocol.VERSION})
        self._put(event)

    def _reported(self, line: Line) -> None:
        event = hooks_protocol.event(line, time.monotonic(), self._grace)
        if isinstance(event, Collected):
            self._collected(event)
        elif isinstance(event, WorkerExited | WorkersStopped):
            for each in self._enrich(event):
                self._put(each)
        elif event is not None:
            self._put(event)

    def _refuse(self, hook: _Hook, reason: str) -> None:
        try:
            hook.line.send({"refused": reason})
        except ConnectionError:
            pass  # the process is gone already
        hook.line.close(reason)

    def _closed(self, line: LineConnection, wrong: str) -> None:
        hook = self._by_line.pop(line)
        del self._hooks[hook.name]
        if hook.timer is not None:
            hook.timer.cancel()
        if wrong:
            log.warning("a connection to %s was closed: %s", self._path.name, wrong)
        if hook.pid:
            for event in self._enrich(HookDisconnected(hook.name, is_alive(hook.pid))):
                self._put(event)
