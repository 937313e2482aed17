"""A round of the node check through a real sidecar: the orders to the hooks, and the reports to the master."""

from __future__ import annotations

import pytest

from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.generation import Ready
from outrider.wire.messages.membership import Finish
from outrider.wire.messages.node_check import Check, Checked, CheckPeer, PeerCheck
from tests.integration.sidecar.bench import member, template

ORDER = Check(OrderId(7), 2, 2000, (CheckPeer(MemberId("worker-2"), "10.0.0.2", 2001),), (MemberId("worker-3"),))
ANSWER = {"event": "checked", "order": 7, "round": 2, "result": "ok", "kind": "numpy", "compute": 0.5, "cpu": 0.25,
          "elapsed": 1.5, "peers": [{"member": "worker-2", "seconds": 0.125, "error": ""}]}  # fmt: skip


async def test_a_round_reaches_the_hooks_and_comes_back() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        master.send(ORDER)
        line = await hook.hears("do")
        assert (line["do"], line["order"], line["round"], line["port"], line["compute"]) == ("check", 7, 2, 2000, True)
        assert line["peers"] == [{"member": "worker-2", "address": "10.0.0.2", "port": 2001}]
        assert line["awaited"] == ["worker-3"]
        hook.say(ANSWER)
        peers = (PeerCheck(MemberId("worker-2"), 0.125),)
        assert await master.hears(Checked) == Checked(OrderId(7), 2, "ok", "", "numpy", 0.5, 0.25, 1.5, peers)


@pytest.mark.parametrize("wrong", [{"compute": -1.0}, {"cpu": 1e9}, {"elapsed": "long"}, {"compute": float("nan")},
                                   {"peers": [{"member": "worker-2", "seconds": float("inf")}]}])  # fmt: skip
async def test_times_that_cannot_be_are_a_result_of_their_own(wrong: dict[str, object]) -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        master.send(ORDER)
        await hook.hears("do")
        hook.say(ANSWER | wrong)
        found = await master.hears(Checked)
        assert (found.result, found.compute, found.peers) == ("absurd", 0.0, ())


async def test_the_last_words_go_to_the_trainer_with_its_end() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        master.send(Finish(OrderId(8), 3, "left out", "worker-1 failed the node check"))
        line = await hook.hears("do")
        assert line == {"do": "finish", "code": 3, "say": "worker-1 failed the node check"}
