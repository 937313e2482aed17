"""Runs the webhook in its own process, which only reads from the API server (docs/adr/0031).

It needs two Secrets that the masters keep: its certificate, and the public half of the key by which sidecars recognize
their master; it never has the secret half. After SIGTERM it keeps answering until all proxies have dropped it: an API
server that connects to a closed port creates the pod without us.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.outage import until_it_answers
from outrider.master.kubernetes.auth import secret_keys
from outrider.master.kubernetes.health import Health
from outrider.master.kubernetes.settings import Settings
from outrider.master.kubernetes.webhook import admission, certificates
from outrider.master.kubernetes.webhook.injection_policy import has_native_sidecars, policy_of

LOOK_EVERY = 5.0
AGAIN = 1.0
LEAVING_SECONDS = 10.0
"""Seconds within which every node's proxy has learned that a pod is terminating."""

log = logging.getLogger("webhook")


async def serve(settings: Settings) -> int:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    api = await Api.connect()
    health = Health(api)
    try:
        await health.start(settings.http_port)
        await answer(api, settings, health, ended)
        return 0
    finally:
        await health.stop()
        await api.close()


async def answer(
    api: Api, settings: Settings, health: Health, ended: asyncio.Event, leaving: float = LEAVING_SECONDS
) -> None:
    """Answers the API server until `ended`, and for `leaving` more seconds if it was ready by then."""
    answering = asyncio.ensure_future(_answer(api, settings, health, ended, leaving))
    ending = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
        if health.is_ready or answering.done():  # before it is ready, it receives no requests
            await answering
    finally:
        ending.cancel()
        answering.cancel()
        await asyncio.gather(ending, answering, return_exceptions=True)


async def _answer(api: Api, settings: Settings, health: Health, ended: asyncio.Event, leaving: float) -> None:
    known = Known(api, settings)
    await known.first()
    following = asyncio.ensure_future(known.follow())

    def certify(serve: admission.Serve) -> Any:
        return certificates.follow(api, settings.namespace, serve)

    try:
        async with admission.serving(api, settings, lambda: known.policy, certify) as server:
            health.is_ready = True
            await ended.wait()
            health.is_leaving = True
            server.leave()
            await asyncio.sleep(leaving)
    finally:
        following.cancel()


class Known:
    """The current injection policy."""

    def __init__(self, api: Api, settings: Settings, pause: Callable[[float], Awaitable[Any]] = asyncio.sleep) -> None:
        self._api, self._settings, self._pause = api, settings, pause
        self._native = False
        self.policy: Policy

    async def first(self) -> None:
        """Waits for the API server and the masters; returns when `policy` is set."""
        self._native = await until_it_answers(
            lambda: has_native_sidecars(self._api), "reading the cluster's version", log, self._pause
        )
        while not await until_it_answers(self._look, "reading the masters' public key", log, self._pause):
            log.info("the Secret %s does not exist yet: waiting for a master to create it", secret_keys.PUBLIC)
            await self._pause(AGAIN)

    async def follow(self) -> NoReturn:
        while True:
            await self._pause(LOOK_EVERY)
            try:
                await self._look()
            except (ApiError, TimeoutError) as error:
                log.warning("reading the Secret %s failed: %s", secret_keys.PUBLIC, error or "no answer in time")

    async def _look(self) -> bool:
        """Whether a public key was read; if the Secret is missing or empty, the last one stays in use."""
        key = await secret_keys.public(self._api, self._settings.namespace)
        if key:
            self.policy = policy_of(self._settings, key, self._native)
        return bool(key)
