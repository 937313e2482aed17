"""What the jobs of one namespace may ask of the API server at one time. So no job waits behind the many of another
namespace."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from outrider.master.kubernetes.api.client import Api

ASK_AT_ONCE = 16
"""Requests of all jobs of one namespace that are on their way: the pool has 100 connections, and others want some."""
BEGIN_AT_ONCE = 8
"""Jobs of a namespace whose status is claimed at one time: a new leader has all of them before it, and its Lease to
keep."""


class NamespaceShares:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._asking: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._beginning: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def api(self, namespace: str) -> Api:
        return self._api.in_turn(self._asking.setdefault(namespace, asyncio.Semaphore(ASK_AT_ONCE)))

    def beginning(self, namespace: str) -> asyncio.Semaphore:
        return self._beginning.setdefault(namespace, asyncio.Semaphore(BEGIN_AT_ONCE))
