"""Keys that all replicas share, made by whichever comes first: the CURVE pair and the key of the tickets."""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping

from master.shell.kubernetes.api import Api, ApiError
from runtime.sockets import KeyPair, new_key_pair

CURVE, TICKETS = "outrider-master-curve", "outrider-tickets"


async def curve(api: Api, namespace: str) -> KeyPair:
    def make() -> dict[str, bytes]:
        pair = new_key_pair()
        return {"public": pair.public.encode(), "secret": pair.secret.encode()}

    found = await get_or_make(api, namespace, CURVE, make)
    return KeyPair(found["public"].decode(), found["secret"].decode())


async def tickets(api: Api, namespace: str) -> bytes:
    return (await get_or_make(api, namespace, TICKETS, lambda: {"key": secrets.token_bytes(32)}))["key"]


async def get_or_make(api: Api, namespace: str, name: str, make: Callable[[], Mapping[str, bytes]]) -> dict[str, bytes]:
    """The Secret's data; where two make it at once, the one that was there first counts for both."""
    folder = f"/api/v1/namespaces/{namespace}/secrets"
    try:
        found = await api.get(f"{folder}/{name}")
    except ApiError as error:
        if not error.is_absent:
            raise
        data = {key: b64encode(value).decode() for key, value in make().items()}
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": data}
        try:
            found = await api.create(folder, document)
        except ApiError as conflict:
            if not conflict.is_conflict:
                raise
            found = await api.get(f"{folder}/{name}")
    return {key: b64decode(value) for key, value in found["data"].items()}
