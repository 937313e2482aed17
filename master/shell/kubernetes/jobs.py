"""One job of the cluster while it runs: its core, its pump, and what carries between them and the API server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from master.core.actions import Action
from master.core.cluster import elasticjob, owners_resizing, validation, vanished
from master.core.cluster import pods as pod_documents
from master.core.cluster.injection import Policy
from master.core.cluster.names import Document
from master.core.events import Began, Event, NodeSeen, PodSeen, SpecChanged, StopAsked
from master.core.spec import WORKER, JobSpec
from master.core.state import State
from master.shell.core import CORE
from master.shell.effects import MasterEffects
from master.shell.kubernetes.api import Api, ApiError
from master.shell.kubernetes.belongings import Belongings
from master.shell.kubernetes.platform import KubernetesPlatform
from master.shell.kubernetes.record import JobRecord
from master.shell.sidecars import Sidecars
from runtime.journal import Journal
from runtime.pump import Pump
from wire.ids import MemberId

ORDERS = 50_000
"""More than one attempt gives."""
END_PATIENCE = 60.0
"""Seconds that the pods of a job that is over have to end."""

log = logging.getLogger("jobs")


class RunningJob:
    """`run` returns the pump's exit code: 0 where the job is over. `is_master` is asked before anything is done."""

    def __init__(
        self,
        api: Api,
        job: Document,
        term: int,
        policy: Policy,
        sidecars: Sidecars,
        journals: Path,
        is_master: Callable[[], bool],
        attempt: int = 0,
        node_of: Callable[[str], NodeSeen | None] = lambda _name: None,
    ) -> None:
        """`attempt`: how often this process has begun the job before; orders get other numbers each time. `node_of`:
        what is known of a node."""
        self.attempt = attempt
        self.key = elasticjob.key_of(job)
        self.uid = job["metadata"]["uid"]
        self._term, self._is_master = term, is_master
        self._pods: dict[str, Document] = {}
        self._told: dict[MemberId, PodSeen] = {}
        self._public_key = policy.public_key
        self._node_of = node_of
        self._told_nodes: dict[str, NodeSeen] = {}
        """Those that are not Ready; all, where a rule of the job is about nodes."""
        self._has_node_rules = False
        self._record = JobRecord(api, job, term, lambda: list(self._pods.values()))
        journal = Journal(journals / f"{self.key.replace('/', '.')}.txt")
        self._pump: Pump[State, Event, Action] = Pump(CORE, State(next_order=1 + attempt * ORDERS), journal)
        self._platform = KubernetesPlatform(api, self._record, policy, self._pump.put, self._lacks_pods)
        self.effects = MasterEffects(self._pump.put, self._pump.stop, sidecars, self._platform, self._record, self.key)
        self._belongings = Belongings(api, self._record, lambda: list(self._pods.values()), (WORKER,), is_master)
        self._pump.drain_before_judging(sidecars.drain)
        self._seen = job["metadata"].get("generation")
        self._listed = self.has_begun = self._forgotten = self._is_ending = False
        self._moved = asyncio.Event()
        self._looking: set[asyncio.Task[None]] = set()
        """Pods that the watch shows no more, and that may be there."""

    @property
    def document(self) -> Document:
        return self._record.job

    @property
    def state(self) -> State:
        return self._pump.state

    def put(self, event: Event) -> None:
        self._pump.put(event)

    async def run(self) -> int:
        saved = await self._record.claim()
        self._seen = self._record.job["metadata"].get("generation")
        self._tell_spec(first=saved)
        keeping = [self._record.post_events(), self._belongings.keep(), self._platform.owner.keep()]
        beside = [asyncio.ensure_future(each) for each in keeping]
        for each in beside:
            each.add_done_callback(_tell_bug)
        try:
            code = await self._pump.run(_Fenced(self.effects, self._is_master))
            if code == 0 and not self._forgotten:
                await self._see_pods_out()
                await self._record.post_last_events()
            return code
        finally:
            for each in beside:
                each.cancel()
            for task in self._looking:
                task.cancel()

    async def _see_pods_out(self) -> None:
        """The core is done; its pods end a moment later, and the status says so. One of ours that goes on (its restart
        policy starts a failed trainer again, its sidecar was never reached) is deleted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_PATIENCE):
                while not all(pod_documents.is_over(pod) for pod in self._pods.values()) and not self._forgotten:
                    self._moved.clear()
                    await self._moved.wait()
        for pod in [] if self._forgotten or self.state.spec.is_adopted else list(self._pods.values()):
            if not pod_documents.is_over(pod):
                with contextlib.suppress(ApiError):
                    await self._platform.remove(pod)
        if not self._forgotten:
            with contextlib.suppress(ApiError):
                await self._record.save_again()

    def _tell_spec(self, first: dict[str, object] | None) -> None:
        job = elasticjob.with_defaults(self._record.job)
        spec = elasticjob.spec_of(job)
        self._pump.put(Began(self._term, spec, first, time.time()))
        self._pump.put(SpecChanged(spec, bool(job["spec"].get("suspend"))))
        self.has_begun = True
        self._follow_rules(spec)
        self._end_if_deleted()
        if self._listed:
            self._put_list()

    # -- what the watches show --------------------------------------------------------------------------------------
    def changed(self, job: Document) -> None:
        """A status write changes the version, an edit the generation as well."""
        before = self._record.job
        self._record.update(job)
        self._end_if_deleted()
        generation = job["metadata"].get("generation")
        if generation == self._seen or not self.has_begun or self._is_ending:
            return
        self._seen = generation
        wrong = owners_resizing.refusal(job, self._platform.owner.document, self.state.target)
        self._record.problems = validation.problems(job) + ([wrong] if wrong else [])
        if self._record.problems:
            reason = f"The job is run as it was: {'; '.join(self._record.problems)}"
            self._record.add("SpecRefused", reason, "warning", None, "", {})
            return
        job = elasticjob.with_defaults(job)
        spec = elasticjob.spec_of(job)
        is_new = elasticjob.pod_templates(before) != elasticjob.pod_templates(job)
        self._pump.put(SpecChanged(spec, bool(job["spec"].get("suspend")), is_new))
        self._follow_rules(spec)
        self._belongings.stir()

    def _end_if_deleted(self) -> None:
        """Somebody's finalizer keeps it for a while, and nothing takes its pods meanwhile: they are ended in order."""
        if elasticjob.is_deleted(self.document) and self.has_begun and not self._is_ending:
            self._is_ending = True
            self._pump.put(StopAsked("its ElasticJob is being deleted"))

    def list_pods(self, pods: list[Document]) -> None:
        self._pods = {pod["metadata"]["name"]: pod for pod in pods}
        self._listed = True
        if self.has_begun:
            self._put_list()

    def _put_list(self) -> None:
        found = pod_documents.listed(self._pods.values(), self._public_key)
        self._told = {pod.member: pod for pod in found.pods}
        self._pump.put(found)
        self._tell_nodes()

    def pod_changed(self, kind: str, pod: Document) -> None:
        name, seen = pod["metadata"]["name"], pod_documents.seen(pod, self._public_key)
        if kind == "DELETED":
            self._pods.pop(name, None)
        else:
            self._pods[name] = pod
        self._moved.set()
        self._belongings.stir()
        if kind != "MODIFIED" or pod["metadata"].get("deletionTimestamp"):
            self._platform.owner.stir()
        if seen is None or not self.has_begun:
            return
        if kind == "DELETED" and vanished.may_run(pod):
            self._told.pop(seen.member, None)
            task = asyncio.create_task(self._look_after(pod, seen))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
            task.add_done_callback(_tell_bug)
        elif kind == "DELETED" or pod_documents.is_gone(pod):
            self._told.pop(seen.member, None)
            self._pump.put(pod_documents.gone(pod, seen, is_deleted=kind == "DELETED"))
        elif self._told.get(seen.member) != seen:
            self._told[seen.member] = seen
            self._pump.put(seen)
            self._tell_node(self._node_of(seen.node))

    async def _look_after(self, pod: Document, seen: PodSeen) -> None:
        """Was it deleted by force, or its label taken away?"""
        try:
            now = await self._platform.read(pod)
        except ApiError as error:
            log.info("%s: pod %s: %s", self.key, pod["metadata"]["name"], error)
            now = {}
        if (event := vanished.read_again(pod, seen, now)) is not None:
            self._pump.put(event)

    def _lacks_pods(self) -> bool:
        there = sum(pod.phase in ("pending", "running") for pod in self._told.values())
        return self._listed and there < self.state.target

    def node_changed(self, node: NodeSeen) -> None:
        """One that none of its pods is on is nothing to it."""
        if node.node in self._told_nodes or any(pod.node == node.node for pod in self._told.values()):
            self._tell_node(node)

    def _tell_node(self, node: NodeSeen | None) -> None:
        if node is None or not self.has_begun:
            return
        before = self._told_nodes.pop(node.node, None)
        is_worth_it = not node.is_ready or self._has_node_rules
        if is_worth_it:
            self._told_nodes[node.node] = node
        if node != before and (before is not None or is_worth_it):
            self._pump.put(node)

    def _tell_nodes(self) -> None:
        for name in sorted({pod.node for pod in self._told.values()}):
            self._tell_node(self._node_of(name))

    def _follow_rules(self, spec: JobSpec) -> None:
        self._has_node_rules = any(rule.taint or rule.condition[0] for rule in spec.rules)
        self._tell_nodes()

    def forget(self) -> None:
        """The ElasticJob was deleted: its pods go with it, by their owner references."""
        self._forgotten = True
        self._moved.set()
        self._pump.stop(0)


def _tell_bug(task: asyncio.Future[None]) -> None:
    """No job depends on its Events, its budget or its owner's size."""
    if not task.cancelled() and task.exception() is not None:
        log.error("what is done beside a job has failed: %r", task.exception(), exc_info=task.exception())


class _Fenced:
    """Nothing is done by a process that is no longer the master: one that was frozen finds out here, before it acts."""

    def __init__(self, effects: MasterEffects, is_master: Callable[[], bool]) -> None:
        self._effects, self._is_master = effects, is_master

    def perform(self, action: Action) -> Coroutine[object, object, None] | None:
        if not self._is_master():
            raise SystemExit("the Lease has run out while this process did not look: another replica may be the master")
        return self._effects.perform(action)
