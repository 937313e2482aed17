"""The webhook of one replica: what `outrider.master.core.k8s` decides, behind certificates that the cluster
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
"""The API server asks only about pods that a selector of ours has chosen, by their own label or their namespace's."""
BEGUN_SECONDS = 1.0
OWNERS_SECONDS = 2.0
"""Half of what the webhook has to decide."""

log = logging.getLogger("admission")


Serve = Callable[[Certificates], None]


@contextlib.asynccontextmanager
async def serving(
    api: Api, settings: Settings, policy: Callable[[], Policy], certify: Callable[[Serve], Coroutine[Any, Any, None]]
) -> AsyncIterator[HttpsServer]:
    """It answers, with a certificate that the API server trusts, when this is entered. `certify` runs all the time, and
    gives what is to be served."""

    async def mutate(pod: Document, namespace: str, _request: Document) -> Mutation:
        if said := unwatched(namespace, settings.namespaces):
            return None, [f"outrider: the pod is made as it is: {said[0]}"]
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
    """The pod with a sidecar, or why it has none. `patience`: seconds for what the API server is asked; `mode`: the
    master's, of all jobs."""
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
        would = "would be supervised, and is made as it is" if meant.word == OBSERVE else "is made as it is"
        log.info("a pod of the job %s in %s %s: %s", place.job, namespace, would, meant.why)
        return None, [f"outrider: the pod {would}: {meant.why}"]
    return (found.pod if found.changed else None), [f"outrider: {warning}" for warning in found.warnings]


async def _has_begun(api: Api, namespace: str, job: str, patience: float) -> bool:
    """A pod of a job that we look after joins its world when supervision is on again; alone it would be a second one.
    Not knowing counts as yes."""
    try:
        async with asyncio.timeout(patience):
            await api.get(path_of(namespace, job))
    except (ApiError, TimeoutError) as error:
        return not (isinstance(error, ApiError) and error.is_absent)
    return True


async def _with_its_past(
    api: Api, pod: Document, namespace: str, place: Place, known: list[Document], patience: float
) -> Place:
    """With what has to be known of a pod that may begin without a master (docs/adr/0028); as it is where that does not
    come in time."""
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
        log.info("a pod of the job %s in %s waits for a master: %s", place.job, namespace, str(error) or "no answer")
        return place
    if size is None or size.min != size.max:
        return place
    return replace(place, is_untrained=True, members=size.replicas)


async def _was_trained(api: Api, namespace: str, job: str) -> bool:
    """A generation was formed. Raises ApiError where that cannot be read."""
    try:
        status = mapping((await api.get(path_of(namespace, job))).get("status"))
    except ApiError as error:
        if error.is_absent:
            return False
        raise
    return status.get("generation") not in (None, "", str(NO_GENERATION))


async def _owners(api: Api, pod: Document, namespace: str, patience: float) -> list[Document]:
    """Where they say what the pod does not, and as far as they come in time: the master places it without them too."""
    found: list[Document] = []
    if owners_owner.needs_owners(pod):
        try:
            async with asyncio.timeout(patience):
                async for owner in owners_of(api, pod, namespace):
                    found.append(owner)
        except (ApiError, TimeoutError) as error:
            log.warning("the owners of a pod in %s were not read: %s", namespace, str(error) or "it took too long")
    return found
