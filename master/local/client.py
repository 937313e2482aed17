"""The local platform: a client of `node.sock`, behind which `outrider run` makes members of processes.

The node is the same process that holds the lifeline: where it is gone for good, the master is about to end as well. So
a broken connection is only made again, and the list asked for anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
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
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role

AGAIN_AFTER = 0.1
CONNECT_SECONDS = 5.0

log = logging.getLogger("local")


class LocalPlatform:
    """The node as a platform."""

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
        """Nobody looks for it here: the status says which member has which rank index."""

    async def hide(self, pod: HidePod) -> None:
        """An address is a port here, and whose process has ended has none."""

    async def resize_owner(self, action: ResizeOwner) -> None:
        raise NotImplementedError("the members of a local job have no other owner")

    async def follow_owner(self, action: FollowOwner) -> None:
        raise NotImplementedError("the members of a local job have no other owner")

    async def write_replicas(self, action: WriteReplicas) -> None:
        """Nobody looks for it elsewhere than in the status."""

    def ended(self, exit_code: int) -> None:
        """Said, too, because a full disk takes no status."""
        with contextlib.suppress(ConnectionError):
            self._send({"do": "ended", "code": exit_code})

    def _send(self, line: dict[str, object]) -> None:
        if self._connection is None:
            raise ConnectionError("the node is not reached")
        self._connection.send(line)

    # -- the connection ---------------------------------------------------------------------------------------------
    def _protocol(self) -> LineConnection:
        return LineConnection(self._opened, self._line, self._lost)

    def _opened(self, connection: LineConnection) -> None:
        self._connection = connection
        connection.send({"do": "list"})

    def _lost(self, connection: LineConnection, wrong: str) -> None:
        log.warning("the connection to the node ended%s", f": {wrong}" if wrong else "")
        self._connection = None
        self._closed.set()

    def _line(self, connection: LineConnection, line: dict[str, object]) -> None:
        try:
            self._put(event_of(line))
        except (KeyError, TypeError, ValueError) as error:
            connection.close(f"the node said what is no change of a member: {error!r}")


def event_of(line: dict[str, object]) -> Event:
    """What a line of the node means; KeyError, TypeError or ValueError where it means nothing."""
    if "pods" in line:
        pods = line["pods"]
        if not isinstance(pods, list):
            raise TypeError("pods must be a list")
        return PodsListed(tuple(pod_of(pod) for pod in pods))
    if "pod" in line:
        return pod_of(line["pod"])
    gone = _map(line["gone"])
    return PodGone(MemberId(_text(gone["member"])), PodUid(_text(gone["uid"])), _text(gone["reason"]), _code(gone))


def pod_of(line: object) -> PodSeen:
    pod = _map(line)
    rank_index = _whole(pod["rank_index"])
    return PodSeen(
        member=MemberId(_text(pod["member"])),
        uid=PodUid(_text(pod["uid"])),
        role=Role(_text(pod["role"])),
        rank_index=None if rank_index is None else RankIndex(rank_index),
        phase=_text(pod["phase"]),
        reason=_text(pod["reason"]),
        exit_code=_code(pod),
    )


def _map(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no map")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _code(line: dict[str, object]) -> int | None:
    return _whole(line.get("exit_code"))
