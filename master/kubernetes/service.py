"""Assembles a replica, which serves the masters of all jobs once it holds the Lease.

If the replica's Deployment is from before docs/adr/0031, it also serves the webhook at once; today
`master.kubernetes.webhook.service` does that in its own process. While the API server is away, the replica waits.

If another replica holds the Lease, this process ends at once, and the restarted container is a standby without state. A
Lease that cannot be renewed does not end it (docs/adr/0030). At SIGTERM the Lease is given back, so that the other
replica takes over at once. Training continues through both.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine

import uvloop

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.values.limits import Limits
from outrider.master.core.k8s.values.names import LEADER
from outrider.master.kubernetes import predecessors
from outrider.master.kubernetes import settings as settings_of
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.outage import until_it_answers
from outrider.master.kubernetes.auth import secret_keys
from outrider.master.kubernetes.auth.authn import ClusterDoor
from outrider.master.kubernetes.auth.metrics_readers import Readers
from outrider.master.kubernetes.controller import Fleet
from outrider.master.kubernetes.health import Health
from outrider.master.kubernetes.lease import Lease
from outrider.master.kubernetes.settings import ALL, MASTER, WEBHOOK, Settings
from outrider.master.kubernetes.webhook import admission, certificates, handover
from outrider.master.kubernetes.webhook import service as webhook_service
from outrider.master.kubernetes.webhook.injection_policy import has_native_sidecars, policy_of
from outrider.master.service.exit_codes import WRONG_SETTING
from outrider.master.service.refused_connections import RefusalLog
from outrider.master.service.sidecars import Sidecars
from outrider.master.service.telemetry.connecting import connected
from outrider.master.service.telemetry.job import Telemetry
from outrider.runtime import logs
from outrider.runtime.curve_keys import KeyPair
from outrider.runtime.settings import Environment, WrongSetting

LEASE = "outrider-master"
REPLICAS = "app.kubernetes.io/name=outrider,outrider.dev/part=master"
LEASE_LOST = 3
LAST_LOOK = 2.0

log = logging.getLogger("service")


def main(environment: Environment) -> int:
    try:
        settings = settings_of.read(environment)
    except WrongSetting as error:
        print(f"outrider master: {error}", file=sys.stderr)
        return WRONG_SETTING
    logs.set_up(settings.log, "webhook" if settings.serves == WEBHOOK else "master")
    if settings.serves == WEBHOOK:
        return uvloop.run(webhook_service.serve(settings))
    with connected(os.environ) as telemetry:
        return uvloop.run(serve(settings, telemetry))


async def serve(settings: Settings, telemetry: Telemetry | None = None) -> int:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end, 0)
    api = await Api.connect()
    health = Health(api, Readers(api))
    await health.start(settings.http_port)
    of_lease = api.apart()
    lease = Lease(of_lease, LEASE, settings.namespace, settings.identity)
    serving = asyncio.ensure_future(_serve(api, settings, lease, health, end, telemetry))
    serving.add_done_callback(lambda task: _report(task, end))
    try:
        return await ended
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):  # logged by _report
            await serving
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await lease.release()
        await health.stop()
        await of_lease.close()
        await api.close()


def _report(task: asyncio.Task[None], end: Callable[[int], None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("this replica ends: %s", task.exception(), exc_info=task.exception())
        end(1)


async def _serve(api: Api, settings: Settings, lease: Lease, health: Health, end: Callable[[int], None],
                 telemetry: Telemetry | None = None) -> None:  # fmt: skip
    keys = await until_it_answers(
        lambda: secret_keys.curve(api, settings.namespace, lease.has_another_holder), "reading the sidecars' key", log
    )
    native = await until_it_answers(lambda: has_native_sidecars(api), "reading the cluster's version", log)
    policy = policy_of(settings, keys.public, native)
    async with _admission(api, settings, policy, keys, health):
        term = await _acquire(api, settings, lease, keys)
        limits = Limits(settings.max_members)
        fleet = Fleet(api, term, policy, settings.journals, lease, end, settings.mode, limits, settings.namespaces)
        fleet.telemetry = telemetry
        leading = asyncio.ensure_future(_lead(api, settings, lease, keys, fleet, health, term))
        keeping = asyncio.ensure_future(lease.keep())
        try:
            done, _ = await asyncio.wait({leading, keeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            end(LEASE_LOST)
        finally:
            keeping.cancel()
            leading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leading


async def _lead(
    api: Api, settings: Settings, lease: Lease, keys: KeyPair, fleet: Fleet, health: Health, term: int
) -> None:
    ticket_key = await until_it_answers(
        lambda: secret_keys.tickets(api, settings.namespace), "reading the key of the tickets", log
    )
    fleet.sidecars = Sidecars(
        keys, ClusterDoor(api, ticket_key, fleet.inbox, fleet.leadership.superseded), RefusalLog()
    )
    health.fleet = fleet
    try:
        fleet.sidecars.bind(f"tcp://*:{settings.sidecars_port}")
        async with _secrets_kept(api, settings, lease, keys, ticket_key):
            await until_it_answers(lambda: lead(api, settings), "labelling the leader's pod", log)
            others = await until_it_answers(lambda: _others(api, settings), "finding the other replicas", log)
            with predecessors.notified(others, keys.public, ticket_key, settings.identity, term):
                await fleet.run()
    finally:
        fleet.sidecars.close()


@contextlib.asynccontextmanager
async def _admission(
    api: Api, settings: Settings, policy: Policy, keys: KeyPair, health: Health
) -> AsyncIterator[None]:
    """Serves the webhook here, or publishes what the webhook's own Deployment needs from the masters."""

    def certify(serve: admission.Serve) -> Coroutine[object, object, None]:
        return certificates.keep(api, settings.namespace, serve)

    if settings.serves == ALL:
        async with admission.serving(api, settings, lambda: policy, certify) as server:
            server.leave()  # otherwise a kept-alive connection of the API server is cut when this replica ends
            health.is_ready = True
            yield
        return
    await secret_keys.write_back(api, settings.namespace, {secret_keys.PUBLIC: secret_keys.public_of(keys)})

    async def hand_over() -> None:
        await handover.to_its_own_pods(api, settings.namespace)
        health.is_ready = True

    tasks = [asyncio.ensure_future(hand_over()), asyncio.ensure_future(certify(lambda _held: None))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _acquire(api: Api, settings: Settings, lease: Lease, keys: KeyPair) -> int:
    """Waits for the Lease and returns the term. Raises KeyReplaced if this replica's key is not that of the pods."""
    while True:
        term = await _acquire_once(api, settings, lease, keys)
        if lease.is_held:  # the API server may have been away since
            return term


async def _acquire_once(api: Api, settings: Settings, lease: Lease, keys: KeyPair) -> int:
    acquiring = asyncio.ensure_future(lease.acquire())
    watching = asyncio.ensure_future(secret_keys.watch(api, settings.namespace, keys))
    try:
        done, _ = await asyncio.wait({acquiring, watching}, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {acquiring}:
            task.result()
        await until_it_answers(
            lambda: secret_keys.check(api, settings.namespace, keys), "checking the sidecars' key", log
        )
        return acquiring.result()
    finally:
        acquiring.cancel()
        watching.cancel()


@contextlib.asynccontextmanager
async def _secrets_kept(
    api: Api, settings: Settings, lease: Lease, keys: KeyPair, ticket_key: bytes
) -> AsyncIterator[None]:
    """Keeps the Secrets, and writes them back once more when this master leaves: it may be the only one with the
    keys."""
    held = {secret_keys.CURVE: secret_keys.data_of(keys), secret_keys.TICKETS: {"key": ticket_key}}
    if settings.serves == MASTER:
        held[secret_keys.PUBLIC] = secret_keys.public_of(keys)
    keeping = asyncio.ensure_future(secret_keys.keep(api, settings.namespace, held))
    try:
        yield
    finally:
        keeping.cancel()
        if lease.is_held:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_LOOK):
                    await secret_keys.write_back(api, settings.namespace, held)


async def _others(api: Api, settings: Settings) -> list[str]:
    pods = await api.get(f"/api/v1/namespaces/{settings.namespace}/pods", labelSelector=REPLICAS)
    return predecessors.endpoints(pods["items"], settings.pod, settings.sidecars_port)


async def lead(api: Api, settings: Settings) -> None:
    """Moves the leader's label, which the sidecars' Service selects, from every other pod to ours.

    Raises ApiError if it cannot be removed from an existing pod: half of the sidecars would connect to that one.
    """
    folder = f"/api/v1/namespaces/{settings.namespace}/pods"
    for pod in (await api.get(folder, labelSelector=f"{LEADER}=true"))["items"]:
        if pod["metadata"]["name"] != settings.pod:
            try:
                await api.patch(f"{folder}/{pod['metadata']['name']}", {"metadata": {"labels": {LEADER: None}}})
            except ApiError as error:
                if not error.is_absent:
                    raise
    try:
        await api.patch(f"{folder}/{settings.pod}", {"metadata": {"labels": {LEADER: "true"}}})
    except ApiError as error:
        if not error.is_absent:  # started by hand outside a pod: the user must route the sidecars here
            raise
        log.warning("the pod %s does not exist, so the sidecars' Service does not select this leader", settings.pod)
