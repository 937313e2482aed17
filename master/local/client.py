"""The local platform: a client of `node.sock`, at which `outrider run` creates members as processes.

The local node is the process that holds the lifeline: if it is gone for good, the master ends too. So a broken
connection is just restored, and the list of members requested again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from outrider.master.core.actions import (
    CreatePod,
    DeletePod,
    FollowOwner,
    HidePod,
    PlacePod,
    ResizeOwner,
    WriteReplicas,
)
from outrider.master.core.events import Event, PodGone, PodSeen, PodsListed
from outrider.runtime.lines import LineConnection
from outrider.runtime.unix import checked_path
from outrider.wire import reader

AGAIN_AFTER = 0.1
CONNECT_SECONDS = 5.0

log = logging.getLogger("local")


class LocalPlatform:
    """The platform that the local node provides."""

    def __init__(self, socket: Path, put: Callable[[Event], None]) -> None:
        self._path = checked_path(socket)
        self._put = put
        self._connection: LineConnection | None = None
        self._closed = asyncio.Event()

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._closed.clear()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await loop.create_unix_connection(self._protocol, self._path)
                await self._closed.wait()
            await asyncio.sleep(AGAIN_AFTER)

    async def create(self, pod: CreatePod) -> None:
        self._send({"do": "create", "member": pod.member, "role": pod.role, "rank_index": pod.rank_index})

    async def delete(self, pod: DeletePod) -> None:
        self._send({"do": "delete", "member": pod.member, "uid": pod.uid, "grace": pod.grace})

    async def place(self, pod: PlacePod) -> None:
        """Does nothing: the status shows which member has which rank index."""

    async def hide(self, pod: HidePod) -> None:
        """Does nothing: a local member's address is a port, which an ended process no longer has."""

    async def resize_owner(self, action: ResizeOwner) -> None:
        raise NotImplementedError("the members of a local job have no other owner")

    async def follow_owner(self, action: FollowOwner) -> None:
        raise NotImplementedError("the members of a local job have no other owner")

    async def write_replicas(self, action: WriteReplicas) -> None:
        """Does nothing: the number of replicas is in the status."""

    def ended(self, exit_code: int) -> None:
        """Sends the exit code, which cannot be read from the status if the disk is full."""
        with contextlib.suppress(ConnectionError):
            self._send({"do": "ended", "code": exit_code})

    def _send(self, line: dict[str, object]) -> None:
        if self._connection is None:
            raise ConnectionError("the local node is not connected")
        self._connection.send(line)

    # -- the connection ---------------------------------------------------------------------------------------------
    def _protocol(self) -> LineConnection:
        return LineConnection(self._opened, self._line, self._lost)

    def _opened(self, connection: LineConnection) -> None:
        self._connection = connection
        connection.send({"do": "list"})

    def _lost(self, connection: LineConnection, wrong: str) -> None:
        log.warning("the connection to the local node ended%s; reconnecting", f": {wrong}" if wrong else "")
        self._connection = None
        self._closed.set()

    def _line(self, connection: LineConnection, line: dict[str, object]) -> None:
        try:
            self._put(event_of(line))
        except reader.Wrong as wrong:
            connection.close(f"the local node sent an invalid line: {wrong}")


_FORMAT = reader.Format({int: reader.integer, float: reader.finite, bool: reader.flag}, lambda _: reader.text(), list)
_POD, _GONE = _FORMAT.reader(PodSeen), _FORMAT.reader(PodGone)
_PODS = reader.row(_POD, list)


def event_of(line: Mapping[str, object]) -> Event:
    """The event of a line of the local node. Raises Wrong if the line is invalid."""
    if "pods" in line:
        return PodsListed(reader.entry(line, "pods", _PODS))
    found: PodSeen | PodGone = reader.entry(line, "pod", _POD) if "pod" in line else reader.entry(line, "gone", _GONE)
    return found
