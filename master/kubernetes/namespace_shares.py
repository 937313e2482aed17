"""Limits concurrent requests per namespace, so that no job waits behind many jobs of another namespace."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from outrider.master.kubernetes.api.client import Api

ASK_AT_ONCE = 16
"""Most concurrent requests of all jobs of one namespace: all namespaces share a pool of 100 connections."""
BEGIN_AT_ONCE = 8
"""Most jobs of a namespace whose status is claimed at one time: a new leader claims all, and must renew its Lease."""


class NamespaceShares:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._asking: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._beginning: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def api(self, namespace: str) -> Api:
        return self._api.in_turn(self._asking.setdefault(namespace, asyncio.Semaphore(ASK_AT_ONCE)))

    def beginning(self, namespace: str) -> asyncio.Semaphore:
        return self._beginning.setdefault(namespace, asyncio.Semaphore(BEGIN_AT_ONCE))
