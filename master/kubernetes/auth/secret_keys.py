"""Keys that all replicas share, made by whichever comes first: the CURVE pair and the key of the tickets.

The public half of the CURVE pair stands in every pod that was made, so a master with another pair hears none of them
any more. Hence the Secret is only where the key is kept: the master that leads has it, and writes it back when it is
gone or was changed. A replica that begins meanwhile waits for that instead of making another one, and one that waits
for its turn with another key than the Secret's begins anew. A Secret that was emptied is as good as gone. To have
another key, end all replicas, then delete it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.webhook.certificates import MERGE_PATCH, Calls, Reads
from outrider.runtime.curve_keys import KeyPair, new_key_pair

CURVE, TICKETS, PUBLIC = "outrider-master-curve", "outrider-tickets", "outrider-master-public"
PARTS = {CURVE: ("public", "secret"), TICKETS: ("key",), PUBLIC: ("public",)}
"""PUBLIC is what the webhook is to know of CURVE."""
LOOK_EVERY = 10.0
LOOK_FOR = 1.0
LOOKS = 30
"""So often a replica that begins looks for a key that the master has, before it makes one."""

Keys = Mapping[str, bytes]

log = logging.getLogger("keys")


class KeyReplaced(Exception):
    """The masters have agreed on another key than this process has."""


async def curve(
    api: Calls,
    namespace: str,
    is_led: Callable[[], Awaitable[bool]],
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> KeyPair:
    """`is_led`: another replica is the master."""
    for _ in range(LOOKS):
        if _is_whole(CURVE, await _read(api, namespace, CURVE)) or not await is_led():
            break
        log.warning(
            "there is no Secret %s, or nothing in it: the replica that is the master has the key, and writes it back",
            CURVE,
        )
        await pause(LOOK_FOR)

    def make() -> Keys:
        return data_of(new_key_pair())

    found = await get_or_make(api, namespace, CURVE, make)
    return KeyPair(found["public"].decode(), found["secret"].decode())


def data_of(pair: KeyPair) -> Keys:
    return {"public": pair.public.encode(), "secret": pair.secret.encode()}


def public_of(pair: KeyPair) -> Keys:
    return {"public": pair.public.encode()}


async def public(api: Reads, namespace: str) -> str:
    """Empty where no master has told it yet."""
    found = await _read(api, namespace, PUBLIC)
    return b64decode(found["data"]["public"]).decode() if found and _is_whole(PUBLIC, found) else ""


async def tickets(api: Calls, namespace: str) -> bytes:
    return (await get_or_make(api, namespace, TICKETS, lambda: {"key": secrets.token_bytes(32)}))["key"]


async def get_or_make(api: Calls, namespace: str, name: str, make: Callable[[], Keys]) -> dict[str, bytes]:
    """The Secret's data; where two make it at once, the one that was there first counts for both."""
    found = await _read(api, namespace, name)
    if found is None or not _is_whole(name, found):
        try:
            found = await _put(api, namespace, name, found, make())
        except ApiError as conflict:
            if not conflict.is_conflict:
                raise
            found = await api.get(f"{_folder(namespace)}/{name}")
    if not _is_whole(name, found):
        raise ApiError(409, "Incomplete", f"Secret {name} must have {' and '.join(PARTS[name])}: delete it")
    return {key: b64decode(value) for key, value in found["data"].items()}


# -- the master keeps them there ------------------------------------------------------------------------------------
async def keep(
    api: Calls,
    namespace: str,
    held: Mapping[str, Keys],
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> NoReturn:
    """Looks now and then, until it is cancelled."""
    while True:
        await write_back(api, namespace, held)
        await pause(LOOK_EVERY)


async def write_back(api: Calls, namespace: str, held: Mapping[str, Keys]) -> None:
    """Each Secret holds again what this master has. What is refused is tried again at the next look."""
    for name, data in held.items():
        try:
            await _write_back(api, namespace, name, data)
        except (ApiError, TimeoutError) as error:
            log.warning("Secret %s could not be looked after: %s", name, error or "no answer in time")


async def _write_back(api: Calls, namespace: str, name: str, data: Keys) -> None:
    found = await _read(api, namespace, name)
    if found is None or not _holds(found, data):
        await _put(api, namespace, name, found, data)
        what = "was gone" if found is None else "held another key"
        log.warning("Secret %s %s: the key that this master has is written back", name, what)


# -- the others follow ----------------------------------------------------------------------------------------------
async def check(api: Calls, namespace: str, pair: KeyPair) -> None:
    """Raises KeyReplaced where the Secret is there and holds another pair."""
    found = await _read(api, namespace, CURVE)
    if found is not None and not _holds(found, data_of(pair)):
        raise KeyReplaced(f"Secret {CURVE} holds another key than this replica has; it begins anew with that one")


async def watch(
    api: Calls, namespace: str, pair: KeyPair, pause: Callable[[float], Awaitable[Any]] = asyncio.sleep
) -> NoReturn:
    """Checks now and then, until it is cancelled."""
    while True:
        try:
            await check(api, namespace, pair)
        except (ApiError, TimeoutError) as error:
            log.warning("Secret %s could not be looked at: %s", CURVE, error or "no answer in time")
        await pause(LOOK_EVERY)


def _folder(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


async def _read(api: Reads, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        return await api.get(f"{_folder(namespace)}/{name}")
    except ApiError as error:
        if not error.is_absent:
            raise
        return None


async def _put(api: Calls, namespace: str, name: str, found: Mapping[str, Any] | None, data: Keys) -> dict[str, Any]:
    """Makes it, or fills the one that was found, where nobody has changed that since."""
    if found is None:
        return await api.create(_folder(namespace), _secret(name, data))
    version = found["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": _encoded(data)}
    return await api.patch(f"{_folder(namespace)}/{name}", patch, MERGE_PATCH)


def _is_whole(name: str, secret: Mapping[str, Any] | None) -> bool:
    there = {} if secret is None else secret.get("data") or {}
    return all(there.get(part) for part in PARTS[name])


def _holds(secret: Mapping[str, Any], data: Keys) -> bool:
    there = secret.get("data") or {}
    return all(there.get(key) == value for key, value in _encoded(data).items())


def _secret(name: str, data: Keys) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": _encoded(data)}


def _encoded(data: Keys) -> dict[str, str]:
    return {key: b64encode(value).decode() for key, value in data.items()}
