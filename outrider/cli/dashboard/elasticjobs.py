"""ElasticJobs on the dashboard: read, and changed, with the rights of the user's own kubeconfig."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from outrider.cli.dashboard.sources import LINES, ranks_of
from outrider.cli.errors import UserError
from outrider.cli.kube import diagnostics, elasticjobs
from outrider.cli.kube.api import call_api
from outrider.cli.kube.elasticjobs import MIB, sizes_of
from outrider.cli.report_files import of_cluster
from outrider.cli.top.sources import Document
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import (
    HOOKS_CONTAINER,
    JOB,
    KIND,
    MEMBER,
    PROXIES,
    SIDECAR_CONTAINER,
)
from outrider.master.core.k8s.values.replica_specs import has_master
from outrider.master.core.text import requested
from outrider.report.job import Sources

HISTORY_EVERY = 10.0
"""Seconds between two readings of a history: its master writes it no more often."""
RIGHTS_EVERY = 60.0
OURS = (SIDECAR_CONTAINER, HOOKS_CONTAINER, *PROXIES)
USAGE_EVERY = 15.0
"""Seconds between two readings of what pods use: the usual metrics server measures it no more often."""
METRICS = {"group": "metrics.k8s.io", "version": "v1beta1", "plural": "pods"}


class Cluster(elasticjobs.ElasticJobs):
    """The ElasticJobs of one namespace."""

    def __init__(self, namespace: str | None) -> None:
        super().__init__(namespace)
        self.where = f"namespace {self.namespace}"
        self._histories: dict[str, tuple[float, Sources]] = {}
        self._rights: tuple[float, dict[str, bool]] = (float("-inf"), {})
        self._usages: dict[str, tuple[float, dict[str, Document]]] = {}

    def status(self, job: str) -> Document:
        found = super().status(job)
        used = self._usage(job)
        for each in found["members"]:
            each |= used.get(f"{job}-{each['id']}") or used.get(each["id"]) or {}
        return found

    def _usage(self, job: str) -> dict[str, Document]:
        """What the trainers of the job's pods use, by pod; nothing if the cluster has no metrics server or the user no
        right to ask it."""
        read_at, found = self._usages.get(job, (float("-inf"), {}))
        if time.monotonic() - read_at > USAGE_EVERY:
            read = self._objects.list_namespaced_custom_object
            try:
                listed = call_api(read, "list", "", self.namespace, label_selector=f"{JOB}={job}", **METRICS)
            except UserError:
                listed = {}
            found = dict(map(used, map(mapping, entries(mapping(listed).get("items")))))
            self._usages = {job: (time.monotonic(), found)}
        return found

    def sources(self, job: str, status: Document) -> Sources:
        read_at, found = self._histories.get(job, (float("-inf"), None))
        if found is None or time.monotonic() - read_at > HISTORY_EVERY:
            found = of_cluster(job, self.namespace)
            self._histories = {job: (time.monotonic(), found)}
        return Sources(status, found.parts, found.events, found.problems, found.where)

    def stack(self, job: str, member: str) -> Document:
        pod = self._pod(job, member)
        stacks, calls = (diagnostics.collected(what, pod, None, self.namespace) for what in ("stacks", "collectives"))
        return ranks_of(pod, stacks, calls)

    def lines(self, job: str, member: str) -> Document:
        pod = self._pod(job, member)
        container = self._trainer(pod)
        read = self._core.read_namespaced_pod_log
        text = call_api(read, "read the log of", pod, self.namespace, container=container, tail_lines=LINES)
        lines = [{"rank": None, "stream": "out", "text": line} for line in str(text).splitlines()]
        return {"lines": lines, "problem": "" if lines else f"The container {container} of {pod} has written nothing."}

    def _pod(self, job: str, member: str) -> str:
        """The name of the member's pod. Raises UserError if it has none any more."""
        label = f"{JOB}={job}"
        listed = call_api(self._core.list_namespaced_pod, "list", "", self.namespace, label_selector=label)
        for pod in listed.items:
            labels = pod.metadata.labels or {}
            if labels.get(MEMBER) == member or pod.metadata.name == f"{job}-{member}":
                return str(pod.metadata.name)
        raise UserError(f"{member} has no pod any more: its processes and its output went with it")

    def _trainer(self, pod: str) -> str:
        """The first container that is the user's own."""
        found = call_api(self._core.read_namespaced_pod, "get", pod, self.namespace)
        return next(str(each.name) for each in found.spec.containers if each.name not in OURS)

    # -- orders -----------------------------------------------------------------------------------------------------
    def may(self, job: str) -> Mapping[str, bool]:
        """Stopping a job sets `suspend`; a script is not read again in pods, so that there is no restart."""
        read_at, rights = self._rights
        if time.monotonic() - read_at > RIGHTS_EVERY:
            rights = {"stop": self._is_allowed(""), "restart": False, "scale": self._is_allowed("scale")}
            self._rights = time.monotonic(), rights
        return rights

    def _is_allowed(self, subresource: str) -> bool:
        from kubernetes.client import (
            ApiException,
            AuthorizationV1Api,
            V1ResourceAttributes,
            V1SelfSubjectAccessReview,
            V1SelfSubjectAccessReviewSpec,
        )
        from urllib3.exceptions import HTTPError

        asked = V1ResourceAttributes(
            namespace=self.namespace, verb="patch", group=self._kind["group"], resource=self._kind["plural"],
            subresource=subresource,
        )  # fmt: skip
        review = V1SelfSubjectAccessReview(spec=V1SelfSubjectAccessReviewSpec(resource_attributes=asked))
        try:
            answer = AuthorizationV1Api(self._core.api_client).create_self_subject_access_review(review)
        except (ApiException, HTTPError):
            return False
        return answer.status is not None and bool(answer.status.allowed)

    def order(self, job: str, what: str, body: Document) -> str:
        match what:
            case "stop":
                self._patch("", job, {"spec": {"suspend": True}})
                return f"{job} is being suspended: its pods go once its state is saved; `suspend: false` resumes it."
            case "scale":
                self._patch("_scale", job, {"spec": {"replicas": self._workers(job, body["members"])}})
                return f"{requested(body['members'], 'member')}."
            case _:
                raise UserError("pods do not read a script again: change the image or the template of the ElasticJob")

    def _workers(self, job: str, members: int) -> int:
        """The number of workers of so many members. Raises UserError if it is beyond the job's limits, which the API
        server does not know."""
        document = mapping(
            call_api(self._objects.get_namespaced_custom_object, "get", job, self.namespace, KIND, **self._kind)
        )
        least, most = sizes_of(document)
        if least is not None and members < least:
            raise UserError(f"{members} members: must be at least {least}, by minReplicas of {job}")
        if most is not None and members > most:
            raise UserError(f"{members} members: must be at most {most}, by maxReplicas of {job}")
        return members - int(has_master(document))

    def _patch(self, subresource: str, job: str, change: Document) -> Any:
        patch = getattr(self._objects, f"patch_namespaced_custom_object{subresource}")

        def call(**options: Any) -> Any:
            return patch(name=job, **options)

        return call_api(call, "patch", job, self.namespace, KIND, body=change, **self._kind)


def used(measured: Document) -> tuple[str, Document]:
    """A pod's name, and the cores and memory that its containers use without ours."""
    containers = [each for each in map(mapping, entries(measured.get("containers"))) if each.get("name") not in OURS]
    cores, memory = (
        sum(_amount(mapping(each.get("usage")).get(what)) for each in containers) for what in ("cpu", "memory")
    )
    return str(mapping(measured.get("metadata")).get("name")), {"cpu": cores, "memory_mib": memory / MIB}


def _amount(quantity: object) -> float:
    from kubernetes.utils import parse_quantity

    try:
        return float(parse_quantity(quantity))
    except ValueError:
        return 0.0
