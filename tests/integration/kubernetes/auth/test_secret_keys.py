"""The keys of an installation outlive their Secrets for as long as a replica has them."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.auth import secret_keys
from outrider.master.kubernetes.auth.secret_keys import CURVE, TICKETS, KeyReplaced, data_of
from outrider.master.kubernetes.lease import Lease
from outrider.runtime.curve_keys import KeyPair, new_key_pair
from tests.integration.kubernetes.cluster_double import Documents

NAMESPACE = "outrider-system"
FOLDER = f"/api/v1/namespaces/{NAMESPACE}/secrets"


class Enough(Exception):
    pass


async def nobody() -> bool:
    return False


async def never(_seconds: float) -> None:
    raise AssertionError("nothing is waited for")


async def made(api: Documents) -> KeyPair:
    return await secret_keys.curve(api, NAMESPACE, nobody, never)


def held(pair: KeyPair) -> dict[str, secret_keys.Keys]:
    return {CURVE: data_of(pair), TICKETS: {"key": b"ticket"}}


async def test_two_replicas_that_begin_at_once_have_one_key() -> None:
    api = Documents()
    one, two = await asyncio.gather(made(api), made(api))
    assert one == two == await made(api)


@pytest.mark.parametrize("emptied", [None, {}, {"public": ""}])
async def test_a_secret_that_was_emptied_is_filled_by_who_begins(emptied: dict[str, str] | None) -> None:
    api = Documents()
    await made(api)
    await secret_keys.tickets(api, NAMESPACE)
    for name in (CURVE, TICKETS):
        api.documents[f"{FOLDER}/{name}"]["data"] = emptied
    pair = await made(api)
    assert pair == await made(api)
    assert await secret_keys.tickets(api, NAMESPACE) == await secret_keys.tickets(api, NAMESPACE)


async def test_a_master_writes_back_what_is_gone_and_what_was_changed() -> None:
    api, pauses = Documents(), list[float]()
    pair = await made(api)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        assert await made(api) == pair
        assert await secret_keys.tickets(api, NAMESPACE) == b"ticket"
        match len(pauses):
            case 1:
                api.documents.clear()
            case 2:
                api.documents.clear()
                assert await made(api) != pair, "a replica that begins has made another one"
            case 3:
                api.documents[f"{FOLDER}/{CURVE}"]["data"] = None
                api.documents[f"{FOLDER}/{TICKETS}"]["data"] = {}
            case 4:
                api.calls.clear()
            case _:
                raise Enough

    api.documents.clear()
    with pytest.raises(Enough):
        await secret_keys.keep(api, NAMESPACE, held(pair), pause)
    assert pauses == [secret_keys.LOOK_EVERY] * 5
    assert not [call for call in api.calls if not call.startswith("get ")], "what is well is left alone"


async def test_a_secret_that_may_not_be_written_does_not_keep_the_other_from_it() -> None:
    api = Documents()
    api.refusals = [ApiError(403, "Forbidden", "the namespace is being terminated")]
    await secret_keys.write_back(api, NAMESPACE, held(new_key_pair()))
    assert list(api.documents) == [f"{FOLDER}/{TICKETS}"]


async def test_a_replica_that_begins_waits_for_the_master_to_write_its_key_back() -> None:
    api = Documents()
    old, new = (Lease(cast(Api, api), "outrider-master", NAMESPACE, me) for me in ("old", "new"))
    pair = await secret_keys.curve(api, NAMESPACE, old.has_another_holder, never)
    await old.acquire()
    del api.documents[f"{FOLDER}/{CURVE}"]

    async def pause(_seconds: float) -> None:
        if api.calls.count(f"get {CURVE}") > 5:
            await secret_keys.write_back(api, NAMESPACE, held(pair))

    assert await secret_keys.curve(api, NAMESPACE, new.has_another_holder, pause) == pair


async def test_and_makes_one_where_the_master_never_does_or_there_is_none() -> None:
    api = Documents()
    old, new = (Lease(cast(Api, api), "outrider-master", NAMESPACE, me) for me in ("old", "new"))
    await old.acquire()
    waited = list[float]()

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    await secret_keys.curve(api, NAMESPACE, new.has_another_holder, pause)
    assert len(waited) == secret_keys.LOOKS
    del api.documents[f"{FOLDER}/{CURVE}"]
    await old.release()
    await secret_keys.curve(api, NAMESPACE, new.has_another_holder, never)


async def test_a_replica_with_another_key_than_the_secret_restarts() -> None:
    api, pauses = Documents(), list[float]()
    pair = await made(api)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:  # the master writes it back in a moment
            api.documents.clear()
        if len(pauses) == 2:
            api.refusals = [ApiError(0, "", "the API server is away")]
        if len(pauses) == 3:
            await made(api)

    with pytest.raises(KeyReplaced, match="holds another key than this replica"):
        await secret_keys.watch(api, NAMESPACE, pair, pause)
    assert len(pauses) == 3
