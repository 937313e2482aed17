"""Tracks the pods of one job, and reports them and their nodes to its core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from outrider.master.core.events import Event, NodeSeen, PodSeen
from outrider.master.core.k8s.elasticjob import begin_anew, deletion
from outrider.master.core.k8s.pods import disappeared, observe
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.spec import JobSpec
from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.background import Background
from outrider.wire.ids import JobName, MemberId

log = logging.getLogger("jobs")


class JobPods:
    def __init__(
        self,
        key: JobName,
        begun_anew: str,
        job: Callable[[], Document],
        public_key: str,
        node_of: Callable[[str], NodeSeen | None],
        put: Callable[[Event], None],
        read: Callable[[Document], Awaitable[Document]],
        background: Background,
    ) -> None:
        """`begun_anew`: time of the last restart; older pods do not belong to the job. `job`: its newest document.
        `node_of`: the last known state of a node. `read`: reads a pod from the API server."""
        self._key, self._begun_anew, self._job = key, begun_anew, job
        self._public_key, self._node_of = public_key, node_of
        self._put, self._read, self._background = put, read, background
        self._shown: dict[str, Document] = {}
        """Newest document of each pod, by name."""
        self._reported: dict[MemberId, PodSeen] = {}
        """The last report to the core on each pod."""
        self._reported_nodes: dict[str, NodeSeen] = {}
        """The last report on each node that is not Ready; on all nodes if a rule of the job is about nodes."""
        self._has_node_rules = False
        self._of_before: set[str] = set()
        """Uids of pods from before the job's restart."""
        self._known: set[str] | None = None
        """Uids of the pods that existed when the job was deleted; later pods belong to the next job of its name."""
        self._are_listed = self._are_reported = False
        self.moved = asyncio.Event()
        """Set when a pod was created, changed or deleted."""

    def all(self) -> list[Document]:
        return list(self._shown.values())

    @property
    def placed(self) -> int:
        """Number of pods that have a node."""
        return sum(1 for pod in self._shown.values() if mapping(pod.get("spec")).get("nodeName"))

    def lack(self, target: int) -> bool:
        """Whether fewer than `target` pods are running or pending."""
        there = sum(pod.phase in ("pending", "running") for pod in self._reported.values())
        return self._are_listed and there < target

    def begin(self, spec: JobSpec) -> None:
        """Reports the pods to the core from now on, which has started."""
        self._are_reported = True
        self.follow_rules(spec)

    # -- what the watch shows ---------------------------------------------------------------------------------------
    def listed(self, pods: list[Document]) -> None:
        """Takes a new list. Pods that are missing since the last list are read first, as pods that the watch
        dropped."""
        self._of_before = {pod["metadata"]["uid"] for pod in pods if self._is_of_before(pod)}
        before, self._shown = self._shown, {pod["metadata"]["name"]: pod for pod in pods if self.has(pod)}
        self._are_listed = True
        if self._are_reported:
            missing = disappeared.missing(before.values(), pods)
            self._background.start(self._list_after(missing)) if missing else self.report_all()

    async def _list_after(self, missing: list[Document]) -> None:
        for pod in missing:
            if (seen := observe.seen(pod, self._public_key)) is not None:
                await self._look_after(pod, seen)
        self.report_all()

    def report_all(self) -> None:
        """Reports all pods to the core if they have been listed."""
        if self._are_listed:
            found = observe.listed(self._shown.values(), self._public_key)
            self._reported = {pod.member: pod for pod in found.pods}
            self._put(found)
            self._report_nodes()

    def changed(self, kind: str, pod: Document) -> None:
        name, seen = pod["metadata"]["name"], observe.seen(pod, self._public_key)
        if kind == "DELETED":
            self._shown.pop(name, None)
        else:
            self._shown[name] = pod
        self.moved.set()
        if seen is None or not self._are_reported:
            return
        if kind == "DELETED" and disappeared.may_run(pod):
            self._reported.pop(seen.member, None)
            self._background.start(self._look_after(pod, seen))
        elif kind == "DELETED" or observe.is_gone(pod):
            self._reported.pop(seen.member, None)
            self._put(observe.gone(pod, seen, is_deleted=kind == "DELETED"))
        elif self._reported.get(seen.member) != seen:
            self._reported[seen.member] = seen
            self._put(seen)
            self._report_node(self._node_of(seen.node))

    async def _look_after(self, pod: Document, seen: PodSeen) -> None:
        """Reads a pod that left the watch, to find out if it was deleted by force or its label removed or changed."""
        try:
            now = await self._read(pod)
        except ApiError as error:
            log.info("%s: reading the pod %s failed: %s", self._key, pod["metadata"]["name"], error)
            now = {}
        if (event := disappeared.read_again(pod, seen, now)) is not None:
            self._put(event)

    # -- which are its own ------------------------------------------------------------------------------------------
    def has(self, pod: Document) -> bool:
        """Whether the pod belongs to this job: not to another job of its name, nor from before its restart."""
        if self._is_of_before(pod):
            return False
        is_known = self._known is None or not self.are_adopted or pod["metadata"]["uid"] in self._known
        return is_known and deletion.is_its(pod, self._job())

    def is_of_before(self, uid: str) -> bool:
        """Whether the pod is from before the job's restart."""
        return uid in self._of_before

    def _is_of_before(self, pod: Document) -> bool:
        return self.are_adopted and begin_anew.is_of_before(pod, self._begun_anew)

    def has_uid(self, uid: str) -> bool:
        return any(pod["metadata"]["uid"] == uid for pod in self._shown.values())

    @property
    def are_adopted(self) -> bool:
        return bool(self._job()["spec"].get("adopts"))

    def job_deleted(self) -> None:
        """Notes that the job is deleted: pods created from now on belong to the next job of its name."""
        self._known = {pod["metadata"]["uid"] for pod in self._shown.values()}
        self.moved.set()

    def narrow(self, pods: list[Document]) -> None:
        """Keeps only these pods, for a job that was deleted."""
        self._known = {pod["metadata"]["uid"] for pod in pods}
        self.listed(pods)

    # -- their nodes ------------------------------------------------------------------------------------------------
    def node_changed(self, node: NodeSeen) -> None:
        """Reports the node if a pod of the job is on it, or if it was reported before."""
        if node.node in self._reported_nodes or any(pod.node == node.node for pod in self._reported.values()):
            self._report_node(node)

    def _report_node(self, node: NodeSeen | None) -> None:
        if node is None or not self._are_reported:
            return
        before = self._reported_nodes.pop(node.node, None)
        is_relevant = not node.is_ready or self._has_node_rules
        if is_relevant:
            self._reported_nodes[node.node] = node
        if node != before and (before is not None or is_relevant):
            self._put(node)

    def _report_nodes(self) -> None:
        for name in sorted({pod.node for pod in self._reported.values()}):
            self._report_node(self._node_of(name))

    def follow_rules(self, spec: JobSpec) -> None:
        self._has_node_rules = any(rule.taint or rule.condition[0] for rule in spec.rules)
        self._report_nodes()
