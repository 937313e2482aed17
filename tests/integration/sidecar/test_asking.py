"""A real sidecar and the real program beside it that asks, as `outrider stacks --pod` executes it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from outrider.wire.ids import OrderId
from outrider.wire.messages.diagnostics import Answer, Ask
from outrider.wire.messages.generation import Ready
from outrider.wire.messages.membership import Hello
from tests.integration.sidecar.bench import Hook, Member, member, template
from tests.waiting import DEADLINE

ASK = (sys.executable, "-P", "-m", "outrider.sidecar.ask")


async def begun(sidecar: Member, what: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *ASK, what, env=sidecar.environment, cwd="/", stdout=asyncio.subprocess.PIPE
    )


async def said(asking: asyncio.subprocess.Process) -> Any:
    async with asyncio.timeout(DEADLINE):
        output, _ = await asking.communicate()
    assert asking.returncode == 0
    return json.loads(output)


async def asked(hook: Hook, what: str) -> Any:
    order = await hook.hears("do")
    assert (order["do"], order["what"]) == ("collect", what)
    return order["order"]


async def test_several_ask_at_once_one_goes_away_and_each_gets_its_own_answer() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        gone = await begun(sidecar, "stacks")
        orders = {"gone": await asked(hook, "stacks")}
        gone.kill()
        await gone.wait()
        first = await begun(sidecar, "stacks")
        orders["first"] = await asked(hook, "stacks")
        second = await begun(sidecar, "collectives")
        orders["second"] = await asked(hook, "collectives")
        master.send(Ask(OrderId(9), "stacks"))
        orders["master"] = await asked(hook, "stacks")
        for name, order in reversed(orders.items()):
            hook.say({"event": "collected", "order": order, "body": {"ranks": [], "to": name}})
        assert json.loads((await master.hears(Answer)).body)["to"] == "master"
        assert (await said(first))["to"] == "first"
        assert (await said(second))["to"] == "second"


async def test_a_long_answer_comes_whole() -> None:
    async with member() as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        asking = await begun(sidecar, "stacks")
        stack = "File “train.py”, line 33\n" * 20_000
        body = {"ranks": [{"rank": 0, "stack": stack}]}
        hook.say({"event": "collected", "order": await asked(hook, "stacks"), "body": body})
        assert await said(asking) == body


async def test_without_a_template_there_is_an_error_and_no_hang() -> None:
    async with member() as (master, sidecar):
        await master.hears(Hello)
        told = await said(await begun(sidecar, "stacks"))
        assert told == {"error": "no template or launcher is connected to the sidecar"}
        told = await said(await begun(sidecar, "secrets"))
        assert told == {"error": 'Unsupported value: "secrets": supported values: "stacks", "collectives"'}

        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        mute = await begun(sidecar, "stacks")
        await asked(hook, "stacks")
        assert await said(mute) == {"error": "no answer within 5 s"}

        os.kill(sidecar.pid, signal.SIGSTOP)
        assert await said(await begun(sidecar, "stacks")) == {"error": "the sidecar did not answer within 8 s"}
        os.kill(sidecar.pid, signal.SIGCONT)

        await sidecar.kill()
        told = await said(await begun(sidecar, "stacks"))
        assert told == {"error": "the sidecar could not be reached: Connection refused"}


async def test_only_the_sidecar_s_own_user_may_ask() -> None:
    async with member() as (master, sidecar):
        await master.hears(Hello)
        assert (sidecar.folder / "ask.sock").stat().st_mode & 0o777 == 0o600
