"""One job of the cluster while it runs: its core, its pump, and what carries between them and the API server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path

from outrider.master.core import job_kinds
from outrider.master.core.actions import Action
from outrider.master.core.events import Began, Event, NodeSeen, PodSeen, SpecChanged, StopAsked
from outrider.master.core.generation import past_lease
from outrider.master.core.job_kinds import Job
from outrider.master.core.k8s.elasticjob import admission as elasticjob_admission
from outrider.master.core.k8s.elasticjob import begin_anew, deletion, run_policy, validation
from outrider.master.core.k8s.elasticjob import ps as elasticjob_ps
from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.elasticjob.admission import Candidate
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.owners import resize as owners_resize
from outrider.master.core.k8s.pods import disappeared, observe, ps_resources
from outrider.master.core.k8s.values import identity, pytorch_fields, replica_specs, shapes
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.modes import OBSERVE, SUPERVISE, Mode
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.spec import JobSpec
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.budgets import Budgets
from outrider.master.kubernetes.owned_objects import Belongings
from outrider.master.kubernetes.platform import KubernetesPlatform
from outrider.master.kubernetes.status_writer import JobRecord
from outrider.master.service.core_driver import CORE
from outrider.master.service.effects import MasterEffects
from outrider.master.service.sidecars import Sidecars
from outrider.runtime.journal import Journal, Shelf
from outrider.runtime.pump import Pump
from outrider.wire.ids import MemberId

ORDERS = 50_000
"""More than one attempt gives."""
JOURNALS = Shelf()
"""All jobs' journals."""
END_PATIENCE = 60.0
"""Seconds that the pods of a job that is over have to end."""

LEAST_PAUSE, MOST_PAUSE = 1.0, 300.0
"""Seconds before what is done beside a job is begun again after it has failed."""

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
        mode: Mode = Mode(SUPERVISE, ""),  # noqa: B008  a value
        first_order: int = 1,
        begun: Callable[[], None] = lambda: None,
        limits: Limits = USUAL,
        accepted: Document | None = None,
        problems: Sequence[str] = (),
        budgets: Budgets | None = None,
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        """`attempt`: how often this process has begun the job before; orders get other numbers each time, at least from
        `first_order` on. `node_of`: what is known of a node. `begun`: told when its sidecars can be served. `accepted`:
        what is run instead of `job`, which has `problems`. `budgets` and `turns`, in which jobs begin, are of all
        jobs."""
        self.attempt = attempt
        self.key = identity.key_of(job)
        self.uid = job["metadata"]["uid"]
        self._term, self._is_master, self._limits = term, is_master, limits
        self.mode, self._begun = mode, begun
        self.is_left_alone = False
        """It is supervised in this way no more: it ends here, and everything of it goes on."""
        self._pods: dict[str, Document] = {}
        self._told: dict[MemberId, PodSeen] = {}
        self._public_key = policy.public_key
        self._node_of = node_of
        self._told_nodes: dict[str, NodeSeen] = {}
        """Those that are not Ready; all, where a rule of the job is about nodes."""
        self._has_node_rules = False
        self._record = JobRecord(api, job, term, lambda: list(self._pods.values()), accepted)
        self._record.problems = list(problems)
        self._begun_anew = begin_anew.begun_anew(job)
        self._of_before: set[str] = set()
        """Pods (by uid) from before it began anew."""
        self._journal = journal = Journal(journals / f"{self.key.replace('/', '.')}.txt", JOURNALS)
        core = job_kinds.new(
            elasticjob_ps.spec_of(self._record.accepted), next_order=max(first_order, 1 + attempt * ORDERS)
        )
        self._pump: Pump[Job, Event, Action] = Pump(CORE, core, journal)
        self._platform = KubernetesPlatform(api, self._record, policy, self._pump.put, self._lacks_pods, limits)
        self.effects = MasterEffects(self._pump.put, self._pump.stop, sidecars, self._platform, self._record, self.key)
        self._record.owner = lambda: self._platform.owner.document
        self._belongings = Belongings(api, self._record, lambda: list(self._pods.values()), is_master, budgets)
        self._turns = turns or asyncio.Semaphore()
        self._pump.drain_before_judging(sidecars.drain)
        self._seen = ps_resources.edition(job)
        self._listed = self.has_begun = self._forgotten = self._is_ending = False
        self.is_deleted = self.has_ended = self._is_left = False
        self._known: set[str] = set()
        """Pods (by uid) that there were when it was deleted: others are of the next job of its name."""
        self.left_out: list[Document] = []
        """Those among them that are of the next one all the same."""
        self._keeping: list[asyncio.Task[None]] = []
        self._moved = asyncio.Event()
        self._looking: set[asyncio.Task[None]] = set()
        """Reads of pods that the watch shows no more and that may be there, and of an owner that is going."""

    @property
    def document(self) -> Document:
        """As it was shown last, but for a spec that cannot be run."""
        return self._record.job

    @property
    def newest(self) -> Document:
        """Whatever it says."""
        return self._record.newest

    @property
    def failure(self) -> str:
        """Why its core has failed."""
        return self._pump.failure

    @property
    def state(self) -> Job:
        return self._pump.state

    @property
    def next_order(self) -> int:
        """The first number that no order has."""
        return max(part.next_order for part in (self.state, *job_kinds.parts(self.state)))

    def candidate(self) -> Candidate:
        """For the order in which jobs wait for room."""
        created = str(self.document["metadata"].get("creationTimestamp") or "")
        is_ours = not elasticjob_admission.is_queued_elsewhere(self.document)
        lacks_room = is_ours and job_kinds.lacks_room(self.state)
        placed = sum(1 for pod in self._pods.values() if mapping(pod.get("spec")).get("nodeName"))
        return Candidate(self.key, created, lacks_room, job_kinds.waits_behind(self.state), placed)

    def put(self, event: Event) -> None:
        self._pump.put(event)

    def look_at_time(self, unix_time: float) -> None:
        """Its deadline may have passed."""
        ends_at = run_policy.ends_at(self.document)
        if ends_at is not None and ends_at <= unix_time and not self._is_ending:
            self._is_ending = True
            self._pump.put(StopAsked(run_policy.why_it_ends(self.document)))

    async def run(self) -> int:
        beside: list[asyncio.Task[None]] = []
        try:
            async with self._turns:
                saved = await self._claim()
                self._tell_spec(first=saved)
            beside = [asyncio.create_task(self._kept_up("its Events", self._record.post_events))]
            if not self.is_deleted:
                keeping = {"its budget": self._belongings.keep, "its owner's size": self._platform.owner.keep}
                self._keeping = [asyncio.create_task(self._kept_up(*each)) for each in keeping.items()]
            beside += self._keeping
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
            self.has_ended = True

    async def _kept_up(self, what: str, keep: Callable[[], Coroutine[object, object, None]]) -> None:
        """The job itself does not depend on it: what fails is begun again, ever more slowly."""
        pause = LEAST_PAUSE
        while True:
            try:
                await keep()
                return
            except Exception:  # a document of somebody else's, or a bug of ours
                log.exception("%s: %s could not be kept up (a bug of ours); again in %g s", self.key, what, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE)

    def write_journal(self) -> None:
        self._journal.write()

    async def tell_unsupervised(self, reason: str, text: str) -> None:
        """Its ranks train on, and nobody looks after them until it is begun again."""
        self._record.add(reason, text, "warning", None, "", {})
        await self._record.save_unsupervised(reason, text)
        await self._record.post_last_events()

    async def _claim(self) -> dict[str, object] | None:
        """None too where it is gone, and only its pods are left."""
        try:
            return await self._record.claim()
        except ApiError as error:
            if not (self.is_deleted and error.is_absent):
                raise
            self._is_left = True
            return None

    async def _see_pods_out(self) -> None:
        """The core is done; its pods end a moment later, and the status says so. One of ours that goes on (its restart
        policy starts a failed trainer again, its sidecar was never reached) is deleted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_PATIENCE):
                goes = deletion.goes if self.is_deleted else lambda pod: not observe.is_over(pod)
                while any(map(goes, self._pods.values())) and not self._forgotten:
                    self._moved.clear()
                    await self._moved.wait()
        leaves_none = run_policy.leaves_no_pod(self.document)
        for pod in (
            []
            if self._forgotten or self.state.spec.is_adopted or self.state.spec.observed
            else list(self._pods.values())
        ):
            if leaves_none or not observe.is_over(pod):
                with contextlib.suppress(ApiError):
                    await self._platform.remove(pod)
        if not self._forgotten:
            with contextlib.suppress(ApiError):
                await self._record.save_again()

    def _tell_spec(self, first: dict[str, object] | None) -> None:
        if (edition := ps_resources.edition(self.newest)) != self._seen:  # it was edited before it was claimed
            self._seen, problems = edition, validation.problems(self.newest, limits=self._limits)
            if problems:
                self._record.problems = problems
            else:
                self._record.accept()
        job = self._record.accepted = elasticjob_spec.with_defaults(self._record.accepted)
        spec = self._meant(job)
        self._pump.put(Began(self._term, spec, first, time.time(), self._is_left))
        self._pump.put(SpecChanged(spec, bool(job["spec"].get("suspend"))))
        self.has_begun = True
        self._follow_rules(spec)
        self._end_if_deleted()
        if self._listed:
            self._put_list()
        self._begun()

    def _meant(self, job: Document) -> JobSpec:
        """One that is only observed is not measured before it trains."""
        spec = elasticjob_ps.spec_of(job)
        return replace(spec, observed=True, node_check=False) if self.mode.word == OBSERVE else spec

    # -- what the watches show --------------------------------------------------------------------------------------
    def changed(self, job: Document) -> None:
        """A status write changes the version, an edit the generation as well."""
        if begin_anew.is_late(job, self._begun_anew):
            return
        self._record.update(job)
        if self.is_left_alone:
            return
        self._end_if_deleted()
        before, edition = self._record.accepted, ps_resources.edition(job)
        if edition == self._seen or not self.has_begun or self._is_ending:
            return
        self._seen = edition
        if problems := self._problems(job, before):
            self.refuse(problems)
            return
        self._record.accept(before)
        job = self._record.accepted
        spec = self._meant(job)
        is_new = replica_specs.pod_templates(before) != replica_specs.pod_templates(job)
        self._pump.put(SpecChanged(spec, bool(job["spec"].get("suspend")), is_new))
        self._follow_rules(spec)
        self._belongings.stir()

    def _problems(self, job: Document, before: Document) -> list[str]:
        """Also of an edit that met no webhook."""
        if malformed := shapes.malformed(job):
            return malformed
        given = elasticjob_spec.with_defaults(job, before)
        problems, meant = validation.problems(given, limits=self._limits), pytorch_fields.in_our_words(given)
        if problems:
            return problems
        wrong = owners_resize.refusal(meant, self._platform.owner.document, self.state.target)
        return list(dict.fromkeys([*elasticjob_ps.changes(meant, before), *([wrong] if wrong else [])]))

    def refuse(self, problems: list[str]) -> None:
        """The last spec that could be run is followed on."""
        if problems == self._record.problems:
            return
        self._record.problems = problems
        reason = f"The job is run as it was: {'; '.join(problems)}"
        self._record.add("SpecRefused", reason, "warning", None, "", {})
        if self._record.has_saved:
            self._look_at(self._save_again())

    async def _save_again(self) -> None:
        with contextlib.suppress(ApiError):  # the core's next status says it too
            await self._record.save_again()

    def _end_if_deleted(self) -> None:
        """Somebody's finalizer keeps it for a while, and nothing takes its pods meanwhile: they are ended in order. Or
        it was gone before it began here."""
        if self.is_deleted and self.has_begun and not self._is_ending:
            self._is_ending = True
            self._look_at(self._end())
        elif deletion.is_deleted(self.document) and self.has_begun and not self._is_ending:
            self._is_ending = True
            pods, is_foreground = list(self._pods.values()), deletion.is_foreground(self.document)
            left = deletion.seconds_left(pods, time.time()) if is_foreground else None
            self._pump.put(StopAsked("its ElasticJob is being deleted", within=left))

    def list_pods(self, pods: list[Document]) -> None:
        """Those that are missing since the last list are read first, as those that the watch shows no more."""
        self._of_before = {pod["metadata"]["uid"] for pod in pods if self._is_of_before(pod)}
        before, self._pods = self._pods, {pod["metadata"]["name"]: pod for pod in pods if self.has(pod)}
        self._listed = True
        if self.has_begun:
            missing = disappeared.missing(before.values(), pods)
            self._look_at(self._list_after(missing)) if missing else self._put_list()

    async def _list_after(self, missing: list[Document]) -> None:
        for pod in missing:
            if (seen := observe.seen(pod, self._public_key)) is not None:
                await self._look_after(pod, seen)
        self._put_list()

    def _put_list(self) -> None:
        found = observe.listed(self._pods.values(), self._public_key)
        self._told = {pod.member: pod for pod in found.pods}
        self._pump.put(found)
        self._tell_nodes()

    def pod_changed(self, kind: str, pod: Document) -> None:
        name, seen = pod["metadata"]["name"], observe.seen(pod, self._public_key)
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
        if kind == "DELETED" and disappeared.may_run(pod):
            self._told.pop(seen.member, None)
            self._look_at(self._look_after(pod, seen))
        elif kind == "DELETED" or observe.is_gone(pod):
            self._told.pop(seen.member, None)
            self._pump.put(observe.gone(pod, seen, is_deleted=kind == "DELETED"))
        elif self._told.get(seen.member) != seen:
            self._told[seen.member] = seen
            self._pump.put(seen)
            self._tell_node(self._node_of(seen.node))

    def _look_at(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)
        task.add_done_callback(_tell_bug)

    async def _look_after(self, pod: Document, seen: PodSeen) -> None:
        """Was it deleted by force, or its label taken away or changed?"""
        try:
            now = await self._platform.read(pod)
        except ApiError as error:
            log.info("%s: pod %s: %s", self.key, pod["metadata"]["name"], error)
            now = {}
        if (event := disappeared.read_again(pod, seen, now)) is not None:
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

    # -- its own deletion -------------------------------------------------------------------------------------------
    def has(self, pod: Document) -> bool:
        """Not one of another job of its name, nor from before it began anew."""
        if self._is_of_before(pod):
            return False
        is_known = not (self.is_deleted and self._is_adopted) or pod["metadata"]["uid"] in self._known
        return is_known and deletion.is_its(pod, self.document)

    def is_of_before(self, uid: str) -> bool:
        """The pod is from before the job began anew."""
        return uid in self._of_before

    def _is_of_before(self, pod: Document) -> bool:
        return self._is_adopted and begin_anew.is_of_before(pod, self._begun_anew)

    def serves(self, uid: str) -> bool:
        """The pod whose sidecar says Hello may be of the next job of its name."""
        return not self.is_deleted or any(pod["metadata"]["uid"] == uid for pod in self._pods.values())

    def deleted(self) -> None:
        """Its ElasticJob goes, or is gone: nothing is written to it. Its pods are served until they are gone too."""
        if self.is_deleted:
            return
        self.is_deleted = self._record.is_gone = True
        self._known = {pod["metadata"]["uid"] for pod in self._pods.values()}
        for task in self._keeping:
            task.cancel()
        self._moved.set()
        self._is_ending = False  # it may have been asked to end in other words
        self._end_if_deleted()

    async def _end(self) -> None:
        """In order, where its pods go with it."""
        if self.mode.word == OBSERVE:
            self.forget()
            return
        owner = await self._platform.owner.now() if self._is_adopted else None
        why, all_pods = deletion.why_it_ends(self.document, owner), list(self._pods.values())
        pods = deletion.still_its(all_pods, self.document, owner)
        if not why or not self.has_begun or not any(map(deletion.goes, pods)):
            self.forget()
            return
        if len(pods) < len(all_pods):
            self.left_out = [pod for pod in all_pods if pod not in pods]
            self._known = {pod["metadata"]["uid"] for pod in pods}
            self.list_pods(pods)
        self._pump.put(StopAsked(why, within=deletion.seconds_left(pods, time.time())))

    @property
    def _is_adopted(self) -> bool:
        return bool(self.document["spec"].get("adopts"))

    def leave_alone(self) -> None:
        """Nothing more is done here, and nothing is undone."""
        self.is_left_alone = True
        self.forget()

    def forget(self) -> None:
        """What is left of it is not this master's any more."""
        self._forgotten = True
        self._moved.set()
        self._pump.stop(0)


def _tell_bug(task: asyncio.Future[None]) -> None:
    """No job depends on its Events, its budget or its owner's size."""
    if not task.cancelled() and task.exception() is not None:
        log.error("what is done beside a job has failed: %r", task.exception(), exc_info=task.exception())


class PastLease(Exception):
    """What is not done now; the core wants it again later, if it still does."""


class _Fenced:
    """Past its Lease a master only begins a saved world again (`generation.past_lease`). One that was frozen finds out
    here, before it acts."""

    def __init__(self, effects: MasterEffects, is_master: Callable[[], bool]) -> None:
        self._effects, self._is_master = effects, is_master

    def perform(self, action: Action) -> Coroutine[object, object, None] | None:
        if not self._is_master() and not past_lease.may_be_done(action):
            raise PastLease("the Lease has run out, and another replica may be the master")
        return self._effects.perform(action)
