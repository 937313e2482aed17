"""Keeps the keys that all replicas share in Secrets: the CURVE pair and the key of the tickets.

The first replica creates them. Every pod contains the public half of the CURVE pair, so a master with another pair
could not talk to existing pods. Hence the Secret only stores the key: the leading master has it in memory, and writes
it back if the Secret is deleted, emptied or changed. A replica that starts meanwhile waits for that instead of creating
another key, and a standby whose key differs from the Secret's restarts. To change the key, stop all replicas, then
delete the Secret.
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
"""The fields of each Secret. PUBLIC has the half of CURVE that the webhook needs."""
LOOK_EVERY = 10.0
LOOK_FOR = 1.0
LOOKS = 30
"""Number of times that a starting replica looks for the master's key, `LOOK_FOR` seconds apart, before it creates
one."""

Keys = Mapping[str, bytes]

log = logging.getLogger("keys")


class KeyReplaced(Exception):
    """The Secret holds another key than this process."""


async def curve(
    api: Calls,
    namespace: str,
    is_led: Callable[[], Awaitable[bool]],
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> KeyPair:
    """The CURVE pair of all replicas. `is_led`: whether another replica is the master."""
    for _ in range(LOOKS):
        if _is_whole(CURVE, await _read(api, namespace, CURVE)) or not await is_led():
            break
        log.warning(
            "the Secret %s is missing or empty: waiting for the replica that is the master to write the key back",
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
    """The masters' public key; empty if no master has published it yet."""
    found = await _read(api, namespace, PUBLIC)
    return b64decode(found["data"]["public"]).decode() if found and _is_whole(PUBLIC, found) else ""


async def tickets(api: Calls, namespace: str) -> bytes:
    return (await get_or_make(api, namespace, TICKETS, lambda: {"key": secrets.token_bytes(32)}))["key"]


async def get_or_make(api: Calls, namespace: str, name: str, make: Callable[[], Keys]) -> dict[str, bytes]:
    """The Secret's data; if two replicas create it at once, both use the one that was created first."""
    found = await _read(api, namespace, name)
    if found is None or not _is_whole(name, found):
        try:
            found = await _put(api, namespace, name, found, make())
        except ApiError as conflict:
            if not conflict.is_conflict:
                raise
            found = await api.get(f"{_folder(namespace)}/{name}")
    if not _is_whole(name, found):
        raise ApiError(
            409, "Incomplete", f"Secret {name}: data must have {' and '.join(PARTS[name])}: delete the Secret"
        )
    return {key: b64decode(value) for key, value in found["data"].items()}


# -- the master keeps them there ------------------------------------------------------------------------------------
async def keep(
    api: Calls,
    namespace: str,
    held: Mapping[str, Keys],
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> NoReturn:
    """Writes the keys back periodically, until cancelled."""
    while True:
        await write_back(api, namespace, held)
        await pause(LOOK_EVERY)


async def write_back(api: Calls, namespace: str, held: Mapping[str, Keys]) -> None:
    """Writes this master's keys into each Secret that lacks them. Failures are retried at the next look."""
    for name, data in held.items():
        try:
            await _write_back(api, namespace, name, data)
        except (ApiError, TimeoutError) as error:
            log.warning("checking the Secret %s failed: %s", name, error or "no answer in time")


async def _write_back(api: Calls, namespace: str, name: str, data: Keys) -> None:
    found = await _read(api, namespace, name)
    if found is None or not _holds(found, data):
        await _put(api, namespace, name, found, data)
        what = "was missing" if found is None else "held another key"
        log.warning("the Secret %s %s: this master has written its key back", name, what)


# -- the others follow ----------------------------------------------------------------------------------------------
async def check(api: Calls, namespace: str, pair: KeyPair) -> None:
    """Raises KeyReplaced if the Secret exists and holds another pair."""
    found = await _read(api, namespace, CURVE)
    if found is not None and not _holds(found, data_of(pair)):
        raise KeyReplaced(f"the Secret {CURVE} holds another key than this replica, which restarts to use that key")


async def watch(
    api: Calls, namespace: str, pair: KeyPair, pause: Callable[[float], Awaitable[Any]] = asyncio.sleep
) -> NoReturn:
    """Checks the Secret periodically, until cancelled. Raises KeyReplaced."""
    while True:
        try:
            await check(api, namespace, pair)
        except (ApiError, TimeoutError) as error:
            log.warning("reading the Secret %s failed: %s", CURVE, error or "no answer in time")
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
    """Creates the Secret, or fills the one that was found. Raises ApiError (409) if that has changed since."""
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
