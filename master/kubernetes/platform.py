"""Creates and deletes a job's pods through the API server; the watch reports what became of them.

Creating a pod twice is harmless: the name is taken, and an existing pod of this job with that name is the desired one.
The sidecar is injected here, before the pod is sent, so that a replacement needs no running webhook. Pods are created
in slices (`master.kubernetes.pod_slices`); other requests do not wait behind those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outrider.master.core.actions import (
    CreatePod,
    DeletePod,
    FollowOwner,
    HidePod,
    PlacePod,
    ResizeOwner,
    WriteReplicas,
)
from outrider.master.core.events import CreateRejected, Event, PodGone
from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.injection import webhook as injection_webhook
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.pods import build as pod_documents
from outrider.master.core.k8s.pods import create_errors, unknown_fields
from outrider.master.core.k8s.values import identity, paths
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.names import RANK_INDEX, RELAUNCHES, SERVES, Document
from outrider.master.core.text import brief
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.owner import Owner
from outrider.master.kubernetes.pod_slices import Slices
from outrider.master.kubernetes.status_writer import JobRecord, path_of
from outrider.wire.ids import MemberId, PodUid


class CannotInject(Exception):
    """The sidecar cannot be injected into the job's own pod template; the message says why."""


class KubernetesPlatform:
    def __init__(
        self,
        api: Api,
        record: JobRecord,
        policy: Policy,
        put: Callable[[Event], None],
        lacks_pods: Callable[[], bool],
        limits: Limits = USUAL,
    ) -> None:
        """`lacks_pods`: whether fewer of the job's pods are running or pending than desired."""
        self._api, self._record, self._policy, self._put = api, record, policy, put
        self._slices = Slices()
        self.owner = Owner(api, record, put, lacks_pods, limits=limits)

    @property
    def _folder(self) -> str:
        return paths.folder("v1", "pods", self._record.namespace)

    def _path(self, name: str) -> str:
        return paths.named(self._folder, name)

    async def create(self, pod: CreatePod) -> None:
        """Creates the pod. A refusal that lasts until a user changes something is put as `CreateRejected`; other
        failures are raised as ApiError."""
        try:
            await self._create(pod)
        except CannotInject as error:
            self._put(CreateRejected(pod, brief(error)))
        except ApiError as error:
            if not create_errors.is_refusal(error.status):
                raise
            is_final = create_errors.is_final(error.status, error.message)
            self._put(CreateRejected(pod, create_errors.sentence(error.message), is_final))

    async def _create(self, pod: CreatePod) -> None:
        document = self._injected(pod_documents.pod_of(self._record.accepted, pod))
        warnings = list[str]()
        async with self._slices.turn():
            await self._create_once(document, warnings)
        await self._record.leave_out(unknown_fields.found(self._record.newest, pod.role, document, warnings))

    async def _create_once(self, document: Document, warnings: list[str]) -> None:
        name = document["metadata"]["name"]
        try:
            await self._api.create(self._folder, document, warnings, **unknown_fields.WARN)
        except ApiError as error:
            if not error.is_conflict:
                raise
            there = await self._api.get(self._path(name))
            if not _belongs_to(there, self._record.uid):
                raise ApiError(409, "AlreadyExists", f"a pod {name} of another owner already exists") from error

    async def delete(self, pod: DeletePod) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": int(pod.grace),
            "preconditions": {"uid": pod.uid},
        }
        name = identity.name_of(self._record.job, pod.member)
        try:
            await self._api.delete(self._path(name), options)
        except ApiError as error:
            if not (error.is_absent or error.is_conflict):  # on a conflict, another pod has the name by now
                raise
            self._put(PodGone(pod.member, pod.uid, "the pod no longer exists"))

    async def place(self, pod: PlacePod) -> None:
        index = None if pod.rank_index is None else str(pod.rank_index)
        await self._label(pod.member, pod.uid, {RANK_INDEX: index, RELAUNCHES: str(pod.relaunches)})

    async def hide(self, pod: HidePod) -> None:
        await self._label(pod.member, pod.uid, {SERVES: None})

    async def _label(self, member: MemberId, uid: PodUid, labels: Mapping[str, str | None]) -> None:
        """Labels the pod, unless it is gone or another pod has its name by now."""
        path = self._path(identity.name_of(self._record.job, member))
        try:
            await self._api.patch(path, {"metadata": {"uid": uid, "labels": dict(labels)}})
        except ApiError as error:
            if not (error.is_absent or error.is_conflict):
                raise

    async def resize_owner(self, action: ResizeOwner) -> None:
        await self.owner.resize(action)

    async def follow_owner(self, action: FollowOwner) -> None:
        await self.owner.follow(action)

    async def write_replicas(self, action: WriteReplicas) -> None:
        patch = elasticjob_spec.resized(self._record.job, action.replicas)
        await self._api.patch(path_of(self._record.namespace, self._record.name), patch)

    def ended(self, exit_code: int) -> None:
        """Does nothing: the ElasticJob's status reports the end."""

    async def read(self, pod: Document) -> Document:
        return await self._api.get(self._path(pod["metadata"]["name"]))

    async def remove(self, pod: Document) -> None:
        """Deletes the pod with its own grace period."""
        await self._api.delete(self._path(pod["metadata"]["name"]))

    def _injected(self, pod: Document) -> Document:
        try:
            place = owners_owner.place_of(pod, self._record.namespace, {})
        except ValueError as error:  # an annotation that no webhook has checked
            raise CannotInject(str(error)) from error
        if place is None:
            return pod
        injected = injection_webhook.inject(pod, place, self._policy)
        if injected.refused:
            raise CannotInject(injected.refused)
        return injected.pod


def _belongs_to(pod: Document, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in pod["metadata"].get("ownerReferences") or ())
