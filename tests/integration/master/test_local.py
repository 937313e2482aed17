"""The local platform against a real unix socket, and the probe against a real datagram socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest

from outrider.master.core.actions import CreatePod, DeletePod
from outrider.master.core.events import Event, PodGone, PodSeen, PodsListed
from outrider.master.local.client import LocalPlatform, event_of
from outrider.master.service.sidecar_probe import reach
from outrider.wire.ids import Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.reader import Wrong

POD = {"member": "worker-0", "uid": "u", "role": "worker", "rank_index": 0, "phase": "running", "reason": "Started"}


async def test_a_platform_lists_at_once_and_again_after_its_connection_broke(tmp_path: Path) -> None:
    asked: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    events: asyncio.Queue[Event] = asyncio.Queue()

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(json.loads(await reader.readline()))
        writer.write(json.dumps({"pods": [POD]}).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
        if line:
            asked.put_nowait(json.loads(line))
        writer.close()

    server = await asyncio.start_unix_server(node, tmp_path / "node.sock")
    platform = LocalPlatform(tmp_path / "node.sock", events.put_nowait)
    watching = asyncio.ensure_future(platform.watch())
    seen = PodSeen(MemberId("worker-0"), PodUid("u"), Role("worker"), RankIndex(0), "running", "Started")
    assert await events.get() == PodsListed((seen,))
    await platform.create(CreatePod(MemberId("worker-1"), Role("worker"), None, Generation(1, 1), "why"))
    assert await asked.get() == {"do": "list"}
    assert await asked.get() == {"do": "create", "member": "worker-1", "role": "worker", "rank_index": None}
    assert await events.get() == PodsListed((seen,))
    await platform.delete(DeletePod(MemberId("worker-0"), PodUid("u"), 0.0, Generation(1, 1), "why"))
    assert await asked.get() == {"do": "list"}
    assert await asked.get() == {"do": "delete", "member": "worker-0", "uid": "u", "grace": 0.0}
    watching.cancel()
    await asyncio.wait([watching])
    server.close()
    await server.wait_closed()


async def test_an_order_without_a_node_is_an_error(tmp_path: Path) -> None:
    platform = LocalPlatform(tmp_path / "node.sock", lambda _event: None)
    with pytest.raises(ConnectionError, match="the local node is not connected"):
        await platform.create(CreatePod(MemberId("worker-1"), Role("worker"), None, Generation(1, 1), "why"))


def test_a_member_that_is_gone_is_told_with_its_exit_code() -> None:
    gone = {"member": "worker-0", "uid": "u", "reason": "Deleted", "exit_code": 137}
    assert event_of({"gone": gone}) == PodGone(MemberId("worker-0"), PodUid("u"), "Deleted", 137)


@pytest.mark.parametrize(
    "line", [{}, {"pods": 7}, {"pod": []}, {"pod": {**POD, "rank_index": "0"}}, {"pod": {**POD, "member": 1}}]
)
def test_a_line_that_means_nothing_raises_what_the_connection_expects(line: dict[str, object]) -> None:
    with pytest.raises(Wrong):
        event_of(line)


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        self.transport.sendto(data.replace(b"outrider?", b"outrider!"), addr)


async def test_a_sidecar_that_answers_is_reached_and_an_empty_port_is_not() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Echo, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    assert await reach("127.0.0.1", port, 5.0)
    transport.close()
    assert not await reach("127.0.0.1", port, 0.1)


@pytest.mark.parametrize(("address", "port"), [("no address", 1), ("127.0.0.1", 70_000)])
async def test_an_address_that_cannot_be_is_not_reached(address: str, port: int) -> None:
    assert not await reach(address, port, 0.1)
