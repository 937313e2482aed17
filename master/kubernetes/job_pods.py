"""The pods of one job as the watch shows them. Its core is told of them and of the nodes that they are on."""

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
        """`begun_anew`: from when on pods are its own. `job`: as it was shown last. `node_of`: what is known of a node.
        `read`: a pod, as it is now."""
        self._key, self._begun_anew, self._job = key, begun_anew, job
        self._public_key, self._node_of = public_key, node_of
        self._put, self._read, self._background = put, read, background
        self._shown: dict[str, Document] = {}
        """By name."""
        self._told: dict[MemberId, PodSeen] = {}
        self._told_nodes: dict[str, NodeSeen] = {}
        """Those that are not Ready; all, where a rule of the job is about nodes."""
        self._has_node_rules = False
        self._of_before: set[str] = set()
        """Pods (by uid) from before it began anew."""
        self._known: set[str] | None = None
        """Pods (by uid) that there were when it was deleted: others are of the next job of its name."""
        self._are_listed = self._are_told = False
        self.moved = asyncio.Event()
        """One has come, changed or gone."""

    def all(self) -> list[Document]:
        return list(self._shown.values())

    @property
    def placed(self) -> int:
        """Those that have a node."""
        return sum(1 for pod in self._shown.values() if mapping(pod.get("spec")).get("nodeName"))

    def lack(self, target: int) -> bool:
        """Fewer run, or are about to."""
        there = sum(pod.phase in ("pending", "running") for pod in self._told.values())
        return self._are_listed and there < target

    def begin(self, spec: JobSpec) -> None:
        """The core has begun, and is told of them from now on."""
        self._are_told = True
        self.follow_rules(spec)

    # -- what the watch shows ---------------------------------------------------------------------------------------
    def listed(self, pods: list[Document]) -> None:
        """Those that are missing since the last list are read first, as those that the watch shows no more."""
        self._of_before = {pod["metadata"]["uid"] for pod in pods if self._is_of_before(pod)}
        before, self._shown = self._shown, {pod["metadata"]["name"]: pod for pod in pods if self.has(pod)}
        self._are_listed = True
        if self._are_told:
            missing = disappeared.missing(before.values(), pods)
            self._background.start(self._list_after(missing)) if missing else self.tell_all()

    async def _list_after(self, missing: list[Document]) -> None:
        for pod in missing:
            if (seen := observe.seen(pod, self._public_key)) is not None:
                await self._look_after(pod, seen)
        self.tell_all()

    def tell_all(self) -> None:
        """If they have been listed."""
        if self._are_listed:
            found = observe.listed(self._shown.values(), self._public_key)
            self._told = {pod.member: pod for pod in found.pods}
            self._put(found)
            self._tell_nodes()

    def changed(self, kind: str, pod: Document) -> None:
        name, seen = pod["metadata"]["name"], observe.seen(pod, self._public_key)
        if kind == "DELETED":
            self._shown.pop(name, None)
        else:
            self._shown[name] = pod
        self.moved.set()
        if seen is None or not self._are_told:
            return
        if kind == "DELETED" and disappeared.may_run(pod):
            self._told.pop(seen.member, None)
            self._background.start(self._look_after(pod, seen))
        elif kind == "DELETED" or observe.is_gone(pod):
            self._told.pop(seen.member, None)
            self._put(observe.gone(pod, seen, is_deleted=kind == "DELETED"))
        elif self._told.get(seen.member) != seen:
            self._told[seen.member] = seen
            self._put(seen)
            self._tell_node(self._node_of(seen.node))

    async def _look_after(self, pod: Document, seen: PodSeen) -> None:
        """Was it deleted by force, or its label taken away or changed?"""
        try:
            now = await self._read(pod)
        except ApiError as error:
            log.info("%s: pod %s: %s", self._key, pod["metadata"]["name"], error)
            now = {}
        if (event := disappeared.read_again(pod, seen, now)) is not None:
            self._put(event)

    # -- which are its own ------------------------------------------------------------------------------------------
    def has(self, pod: Document) -> bool:
        """Not one of another job of its name, nor from before it began anew."""
        if self._is_of_before(pod):
            return False
        is_known = self._known is None or not self.are_adopted or pod["metadata"]["uid"] in self._known
        return is_known and deletion.is_its(pod, self._job())

    def is_of_before(self, uid: str) -> bool:
        """The pod is from before the job began anew."""
        return uid in self._of_before

    def _is_of_before(self, pod: Document) -> bool:
        return self.are_adopted and begin_anew.is_of_before(pod, self._begun_anew)

    def has_uid(self, uid: str) -> bool:
        return any(pod["metadata"]["uid"] == uid for pod in self._shown.values())

    @property
    def are_adopted(self) -> bool:
        return bool(self._job()["spec"].get("adopts"))

    def job_deleted(self) -> None:
        """Those that come from now on are of the next job of its name."""
        self._known = {pod["metadata"]["uid"] for pod in self._shown.values()}
        self.moved.set()

    def narrow(self, pods: list[Document]) -> None:
        """Of a job that was deleted: no others are its own."""
        self._known = {pod["metadata"]["uid"] for pod in pods}
        self.listed(pods)

    # -- their nodes ------------------------------------------------------------------------------------------------
    def node_changed(self, node: NodeSeen) -> None:
        """One that none of them is on is nothing to the job."""
        if node.node in self._told_nodes or any(pod.node == node.node for pod in self._told.values()):
            self._tell_node(node)

    def _tell_node(self, node: NodeSeen | None) -> None:
        if node is None or not self._are_told:
            return
        before = self._told_nodes.pop(node.node, None)
        is_worth_it = not node.is_ready or self._has_node_rules
        if is_worth_it:
            self._told_nodes[node.node] = node
        if node != before and (before is not None or is_worth_it):
            self._put(node)

    def _tell_nodes(self) -> None:
        for name in sorted({pod.node for pod in self._told.values()}):
            self._tell_node(self._node_of(name))

    def follow_rules(self, spec: JobSpec) -> None:
        self._has_node_rules = any(rule.taint or rule.condition[0] for rule in spec.rules)
        self._tell_nodes()
