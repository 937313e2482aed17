"""The webhook of one replica: what `master.core.cluster` decides, behind certificates that the cluster trusts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from master.core.cluster import elasticjob, injection, owners
from master.core.cluster.injection import Policy
from master.core.cluster.names import INJECT, Document
from master.shell.kubernetes import certificates
from master.shell.kubernetes.api import Api
from master.shell.kubernetes.certificates import Certificates
from master.shell.kubernetes.settings import Settings
from master.shell.webhook import HttpsServer, Mutation, Webhook

SELECTED = {INJECT: "enabled"}
"""The API server asks only about pods that a selector of ours has chosen, by their own label or their namespace's."""


@contextlib.asynccontextmanager
async def serving(api: Api, settings: Settings, policy: Policy) -> AsyncIterator[None]:
    """It answers, with a certificate that the API server trusts, when this is entered."""

    def mutate(pod: Document, namespace: str, _request: Document) -> Mutation:
        return injected(pod, namespace, policy)

    server = HttpsServer(Webhook(mutate, elasticjob.with_defaults, elasticjob.validate).application())
    certified = asyncio.Event()

    def serve(held: Certificates) -> None:
        server.certify(held.certificate, held.key)
        certified.set()

    keeping = asyncio.ensure_future(certificates.keep(api, settings.namespace, serve))
    try:
        await certified.wait()
        await server.start(None, settings.webhook_port)
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await server.stop()


def injected(pod: Document, namespace: str, policy: Policy) -> Mutation:
    """The pod with a sidecar, or why it has none."""
    try:
        place = owners.place_of(pod, namespace, SELECTED)
    except ValueError as error:
        return None, [f"outrider: {error}"]
    if place is None:
        return None, []
    found = injection.inject(pod, place, policy)
    if found.refused:
        return None, [f"outrider: {found.refused}"]
    return (found.pod if found.changed else None), []
