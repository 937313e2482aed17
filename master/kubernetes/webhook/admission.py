"""Serves one replica's webhook, which answers as `outrider.master.core.k8s` decides, with certificates the cluster
trusts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.elasticjob import validation
from outrider.master.core.k8s.injection import webhook as injection_webhook
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.values import modes
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.limits import Limits
from outrider.master.core.k8s.values.modes import OBSERVE, SUPERVISE
from outrider.master.core.k8s.values.names import INJECT, Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.scope import unwatched
from outrider.master.kubernetes.owner_chain import owners_of
from outrider.master.kubernetes.settings import Settings
from outrider.master.kubernetes.status_writer import path_of
from outrider.master.kubernetes.webhook.certificates import Certificates
from outrider.master.kubernetes.webhook.http import HttpsServer, Mutation, Webhook
from outrider.master.service.pattern_compiler import Patterns
from outrider.wire.ids import NO_GENERATION

SELECTED = {INJECT: "enabled"}
"""Label that counts as present: the API server sends only pods that our selector matches by pod or namespace label."""
BEGUN_SECONDS = 1.0
"""Time-out in seconds for reading whether the pod's job has started or was trained."""
OWNERS_SECONDS = 2.0
"""Time-out in seconds for reading the pod's owners, half of the time for the whole decision."""

log = logging.getLogger("admission")


Serve = Callable[[Certificates], None]


@contextlib.asynccontextmanager
async def serving(
    api: Api, settings: Settings, policy: Callable[[], Policy], certify: Callable[[Serve], Coroutine[Any, Any, None]]
) -> AsyncIterator[HttpsServer]:
    """Serves the webhook while the context is entered, with a certificate that the API server trusts. `certify` runs
    all the time and passes on the certificates to serve."""

    async def mutate(pod: Document, namespace: str, _request: Document) -> Mutation:
        if warnings := unwatched(namespace, settings.namespaces):
            return None, [f"outrider: the pod is not changed: {warnings[0]}"]
        return await injected(api, pod, namespace, policy(), mode=settings.mode)

    patterns = Patterns()
    limits = Limits(settings.max_members, patterns.verdicts)

    async def validate(job: Document, old: Document | None) -> list[str]:
        await patterns.learn(job)
        return validation.problems(job, old, limits)

    def remark(job: Document) -> list[str]:
        return unwatched(mapping(job.get("metadata")).get("namespace"), settings.namespaces)

    application = Webhook(mutate, elasticjob_spec.with_defaults, validate, remark).application()
    server = HttpsServer(application, settings.webhook_client_cas)
    certified = asyncio.Event()

    def serve(held: Certificates) -> None:
        server.certify(held.certificate, held.key)
        certified.set()

    keeping = asyncio.ensure_future(certify(serve))
    try:
        await certified.wait()
        await server.start(None, settings.webhook_port)
        yield server
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await server.stop()


async def injected(
    api: Api, pod: Document, namespace: str, policy: Policy, patience: float = OWNERS_SECONDS, mode: str = SUPERVISE
) -> Mutation:
    """The pod with a sidecar, or warnings why it has none. `patience`: seconds for requests to the API server. `mode`:
    the master's mode for all jobs."""
    if not owners_owner.is_asked_for(mapping(mapping(pod.get("metadata")).get("labels")), SELECTED):
        return None, []
    try:
        known = await _owners(api, pod, namespace, patience)
        place = owners_owner.place_of(pod, namespace, SELECTED, known)
    except ValueError as error:
        return None, [f"outrider: {error}"]
    if place is None:
        return None, []
    if uncounted := owners_owner.uncounted(pod):
        return None, [f"outrider: {uncounted}"]
    meant = modes.of_pod(mode, pod)
    if meant.word == SUPERVISE:
        place = await _with_its_past(api, pod, namespace, place, known, min(patience, BEGUN_SECONDS))
    found = injection_webhook.inject(pod, place, policy)
    if found.refused:
        return None, [f"outrider: {found.refused}"]
    if (
        meant.word != SUPERVISE
        and found.changed
        and not await _has_begun(api, namespace, place.job, min(patience, BEGUN_SECONDS))
    ):
        would = "would be supervised, but is not changed" if meant.word == OBSERVE else "is not changed"
        log.info("a pod of the job %s in %s %s: %s", place.job, namespace, would, meant.why)
        return None, [f"outrider: the pod {would}: {meant.why}"]
    return (found.pod if found.changed else None), [f"outrider: {warning}" for warning in found.warnings]


async def _has_begun(api: Api, namespace: str, job: str, patience: float) -> bool:
    """Whether the ElasticJob exists, also true if that cannot be read.

    A pod of an existing job needs its sidecar to join that job when supervision is on again; without it, it would train
    apart.
    """
    try:
        async with asyncio.timeout(patience):
            await api.get(path_of(namespace, job))
    except (ApiError, TimeoutError) as error:
        return not (isinstance(error, ApiError) and error.is_absent)
    return True


async def _with_its_past(
    api: Api, pod: Document, namespace: str, place: Place, known: list[Document], patience: float
) -> Place:
    """`place` with the facts that a pod needs to start without a master (docs/adr/0028); unchanged if they cannot be
    read in time."""
    if place.member:
        return place
    try:
        async with asyncio.timeout(patience):
            if await _was_trained(api, namespace, place.job):
                return place
            reference = owners_owner.controller_of(mapping(pod.get("metadata")))
            if reference is None:
                above: list[Document] = [{"kind": "Pod", **pod}]
            else:
                above = known or [owner async for owner in owners_of(api, pod, namespace)]
        size = owners_owner.size_of(above[-1], pod) if above else None
    except (ApiError, TimeoutError, ValueError) as error:
        why = str(error) or "no answer in time"
        log.info("a pod of the job %s in %s will not start without a master: %s", place.job, namespace, why)
        return place
    if size is None or size.min != size.max:
        return place
    return replace(place, is_untrained=True, members=size.replicas)


async def _was_trained(api: Api, namespace: str, job: str) -> bool:
    """Whether the job has formed a generation. Raises ApiError if that cannot be read."""
    try:
        status = mapping((await api.get(path_of(namespace, job))).get("status"))
    except ApiError as error:
        if error.is_absent:
            return False
        raise
    return status.get("generation") not in (None, "", str(NO_GENERATION))


async def _owners(api: Api, pod: Document, namespace: str, patience: float) -> list[Document]:
    """The pod's owners if they are needed, as far as they can be read in time; the master can do without them."""
    found: list[Document] = []
    if owners_owner.needs_owners(pod):
        try:
            async with asyncio.timeout(patience):
                async for owner in owners_of(api, pod, namespace):
                    found.append(owner)
        except (ApiError, TimeoutError) as error:
            log.warning("reading the owners of a pod in %s failed: %s", namespace, str(error) or "no answer in time")
    return found
