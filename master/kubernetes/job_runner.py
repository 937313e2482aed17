"""One running job of the cluster: its core, its pump, and their connection to the API server."""

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
from outrider.master.core.events import Began, Event, NodeSeen, SpecChanged, StopAsked
from outrider.master.core.job_kinds import Job
from outrider.master.core.k8s.elasticjob import (
    begin_anew,
    deletion,
    queueing,
    run_policy,
    validation,
)
from outrider.master.core.k8s.elasticjob import ps as elasticjob_ps
from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.elasticjob.queueing import Candidate
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.owners import resize as owners_resize
from outrider.master.core.k8s.pods import observe, ps_resources
from outrider.master.core.k8s.values import identity, pytorch_fields, replica_specs, shapes
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.modes import OBSERVE, SUPERVISE, Mode
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.spec import JobSpec
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.background import Background
from outrider.master.kubernetes.budgets import Budgets
from outrider.master.kubernetes.effects_under_lease import EffectsUnderLease
from outrider.master.kubernetes.job_pods import JobPods
from outrider.master.kubernetes.owned_objects import Belongings
from outrider.master.kubernetes.platform import KubernetesPlatform
from outrider.master.kubernetes.status_writer import JobRecord
from outrider.master.service.core_driver import CORE
from outrider.master.service.effects import MasterEffects
from outrider.master.service.sidecars import Sidecars
from outrider.master.service.telemetry.job import Telemetry
from outrider.runtime.journal import Journal, Shelf
from outrider.runtime.pump import Pump
from outrider.wire.ids import MemberId

ORDERS = 50_000
"""Order numbers reserved for each attempt, more than one attempt ever uses."""
JOURNALS = Shelf()
"""The journals of all jobs."""
END_PATIENCE = 60.0
"""Seconds that the pods of a job that is over have to end."""

LEAST_PAUSE, MOST_PAUSE = 1.0, 300.0
"""Shortest and longest pause in seconds before failed background work of a job is started again."""

log = logging.getLogger("jobs")


class RunningJob:
    """`run` returns the pump's exit code, 0 if the job is over. `is_master` is checked before each action."""

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
        """`attempt`: how often this process has started the job before; each attempt numbers its orders differently, at
        least from `first_order` on. `node_of`: the last known state of a node. `begun` is called when the job's
        sidecars can be served. `accepted`: the valid document to run instead of `job`, which has `problems`. `budgets`
        and `turns` are shared by all jobs; a job claims its status within `turns`."""
        self.attempt = attempt
        self.key = identity.key_of(job)
        self.uid = job["metadata"]["uid"]
        self._term, self._is_master, self._limits = term, is_master, limits
        self.mode, self._begun = mode, begun
        self.is_left_alone = False
        """Whether supervision in this mode ends here, while the job itself continues."""
        self._record = JobRecord(api, job, term, lambda: self.pods.all(), accepted)
        self._record.problems = list(problems)
        self._begun_anew = begin_anew.begun_anew(job)
        self.journal = Journal(journals / f"{self.key.replace('/', '.')}.txt", JOURNALS)
        core = job_kinds.new(
            elasticjob_ps.spec_of(self._record.accepted), next_order=max(first_order, 1 + attempt * ORDERS)
        )
        self._pump: Pump[Job, Event, Action] = Pump(CORE, core, self.journal)
        self._platform = KubernetesPlatform(
            api, self._record, policy, self._pump.put, lambda: self.pods.lack(self.state.target), limits
        )
        self._background = Background(log, "background work for a job")
        """Reads of pods that left the watch but may still exist, and of an owner that is being deleted."""
        self.pods = JobPods(
            self.key, self._begun_anew, lambda: self.document, policy.public_key, node_of, self._pump.put,
            self._platform.read, self._background,
        )  # fmt: skip
        self.effects = MasterEffects(self._pump.put, self._pump.stop, sidecars, self._platform, self._record, self.key)
        self._record.owner = lambda: self._platform.owner.document
        self._belongings = Belongings(api, self._record, self.pods.all, is_master, budgets)
        self._turns = turns or asyncio.Semaphore()
        self._pump.drain_before_judging(sidecars.drain)
        self._seen = ps_resources.edition(job)
        self.has_begun = self._forgotten = self._is_ending = False
        self.is_deleted = self.has_ended = self._is_left = False
        self.left_out: list[Document] = []
        """Pods that existed when the job was deleted but belong to the next job of its name."""
        self._keeping: list[asyncio.Task[None]] = []

    @property
    def document(self) -> Document:
        """The newest document, with the last spec that could be run."""
        return self._record.job

    @property
    def newest(self) -> Document:
        """The newest document, also if its spec is invalid."""
        return self._record.newest

    @property
    def failure(self) -> str:
        """Why the core has failed."""
        return self._pump.failure

    @property
    def state(self) -> Job:
        return self._pump.state

    @property
    def next_order(self) -> int:
        """The first unused order number."""
        return max(part.next_order for part in (self.state, *job_kinds.parts(self.state)))

    def export_to(self, telemetry: Telemetry | None) -> None:
        """Exports the job's recoveries and Events from now on."""
        if telemetry is not None:
            self.effects.telemetry = telemetry.of_job(lambda: self.state, self._pod_of)

    def _pod_of(self, member: str) -> str:
        return identity.name_of(self.document, MemberId(member))

    def candidate(self) -> Candidate:
        """The job's entry in the queue for room in the cluster."""
        created = str(self.document["metadata"].get("creationTimestamp") or "")
        is_ours = not queueing.is_queued_elsewhere(self.document)
        lacks_room = is_ours and job_kinds.lacks_room(self.state)
        return Candidate(self.key, created, lacks_room, job_kinds.waits_behind(self.state), self.pods.placed)

    def put(self, event: Event) -> None:
        self._pump.put(event)

    def look_at_time(self, unix_time: float) -> None:
        """Ends the job if its deadline has passed."""
        ends_at = run_policy.ends_at(self.document)
        if ends_at is not None and ends_at <= unix_time and not self._is_ending:
            self._is_ending = True
            self._pump.put(StopAsked(run_policy.why_it_ends(self.document)))

    async def run(self) -> int:
        beside: list[asyncio.Task[None]] = []
        try:
            async with self._turns:
                saved = await self._claim()
                self._start_core(saved)
            beside = [asyncio.create_task(self._kept_up("posting Events", self._record.post_events))]
            if not self.is_deleted:
                keeping = {
                    "keeping its PodDisruptionBudget and Services": self._belongings.keep,
                    "following its owner": self._platform.owner.keep,
                }
                self._keeping = [asyncio.create_task(self._kept_up(*each)) for each in keeping.items()]
            beside += self._keeping
            code = await self._pump.run(EffectsUnderLease(self.effects, self._is_master))
            if code == 0 and not self._forgotten:
                await self._see_pods_out()
                await self._record.post_last_events()
            return code
        finally:
            for each in beside:
                each.cancel()
            self._background.cancel()
            self.has_ended = True

    async def _kept_up(self, what: str, keep: Callable[[], Coroutine[object, object, None]]) -> None:
        """Keeps background work running that the job does not depend on; after a failure it restarts ever more
        slowly."""
        pause = LEAST_PAUSE
        while True:
            try:
                await keep()
                return
            except Exception:  # another controller's document, or a bug of ours
                log.exception("%s: %s failed (a bug in Outrider); restarting in %g s", self.key, what, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE)

    def write_journal(self) -> None:
        self.journal.write()

    async def report_unsupervised(self, reason: str, text: str) -> None:
        """Reports that the job's ranks train without supervision until the next attempt."""
        self._record.add(reason, text, "warning", None, "", {})
        await self._record.save_unsupervised(reason, text)
        await self._record.post_last_events()

    async def _claim(self) -> dict[str, object] | None:
        """Claims the status and returns what was saved; None also if the ElasticJob is gone and only pods are left."""
        try:
            return await self._record.claim()
        except ApiError as error:
            if not (self.is_deleted and error.is_absent):
                raise
            self._is_left = True
            return None

    async def _see_pods_out(self) -> None:
        """Waits until the pods have ended after the core, then writes that into the status.

        Our own pods that still run are deleted: their restart policy may have restarted a failed trainer, or their
        sidecar was never reached.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_PATIENCE):
                goes = deletion.goes if self.is_deleted else lambda pod: not observe.is_over(pod)
                while any(map(goes, self.pods.all())) and not self._forgotten:
                    self.pods.moved.clear()
                    await self.pods.moved.wait()
        leaves_none = run_policy.leaves_no_pod(self.document)
        for pod in [] if self._forgotten or self.state.spec.is_adopted or self.state.spec.observed else self.pods.all():
            if leaves_none or not observe.is_over(pod):
                with contextlib.suppress(ApiError):
                    await self._platform.remove(pod)
        if not self._forgotten:
            with contextlib.suppress(ApiError):
                await self._record.save_again()

    def _start_core(self, saved: dict[str, object] | None) -> None:
        if (edition := ps_resources.edition(self.newest)) != self._seen:  # edited before it was claimed
            self._seen, problems = edition, validation.problems(self.newest, limits=self._limits)
            if problems:
                self._record.problems = problems
            else:
                self._record.accept()
        job = self._record.accepted = elasticjob_spec.with_defaults(self._record.accepted)
        spec = self._meant(job)
        self._pump.put(Began(self._term, spec, saved, time.time(), self._is_left))
        self._pump.put(SpecChanged(spec, bool(job["spec"].get("suspend"))))
        self.has_begun = True
        self.pods.begin(spec)
        self._end_if_deleted()
        self.pods.report_all()
        self._begun()

    def _meant(self, job: Document) -> JobSpec:
        """The core's spec of the job; a job that is only observed has no node check."""
        spec = elasticjob_ps.spec_of(job)
        return replace(spec, observed=True, node_check=False) if self.mode.word == OBSERVE else spec

    # -- what the watches show --------------------------------------------------------------------------------------
    def changed(self, job: Document) -> None:
        """Takes a new version of the document: a status write changes `resourceVersion`, an edit `generation` too."""
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
        self.pods.follow_rules(spec)
        self._belongings.stir()

    def _problems(self, job: Document, before: Document) -> list[str]:
        """What is wrong with an edited spec, also if no webhook has checked it."""
        if malformed := shapes.malformed(job):
            return malformed
        given = elasticjob_spec.with_defaults(job, before)
        problems, meant = validation.problems(given, limits=self._limits), pytorch_fields.in_our_words(given)
        if problems:
            return problems
        wrong = owners_resize.refusal(meant, self._platform.owner.document, self.state.target)
        return list(dict.fromkeys([*elasticjob_ps.changes(meant, before), *([wrong] if wrong else [])]))

    def refuse(self, problems: list[str]) -> None:
        """Reports an invalid spec; the job keeps running with the last valid one."""
        if problems == self._record.problems:
            return
        self._record.problems = problems
        reason = f"The edited spec is invalid; the job keeps its last valid spec: {'; '.join(problems)}"
        self._record.add("SpecRejected", reason, "warning", None, "", {})
        if self._record.has_saved:
            self._background.start(self._save_again())

    async def _save_again(self) -> None:
        with contextlib.suppress(ApiError):  # the core's next status has it too
            await self._record.save_again()

    def _end_if_deleted(self) -> None:
        """Ends the pods in order if the ElasticJob is gone, or is being deleted.

        While a finalizer keeps a deleted ElasticJob, the garbage collector does not delete its pods.
        """
        if self.is_deleted and self.has_begun and not self._is_ending:
            self._is_ending = True
            self._background.start(self._end())
        elif deletion.is_deleted(self.document) and self.has_begun and not self._is_ending:
            self._is_ending = True
            pods, is_foreground = self.pods.all(), deletion.is_foreground(self.document)
            left = deletion.seconds_left(pods, time.time()) if is_foreground else None
            self._pump.put(StopAsked("its ElasticJob is being deleted", within=left))

    def pod_changed(self, kind: str, pod: Document) -> None:
        self._belongings.stir()
        if kind != "MODIFIED" or pod["metadata"].get("deletionTimestamp"):
            self._platform.owner.stir()
        self.pods.changed(kind, pod)

    # -- its own deletion -------------------------------------------------------------------------------------------
    def serves(self, uid: str) -> bool:
        """Whether the pod with this uid is served here: after a deletion it may belong to the next job of its name."""
        return not self.is_deleted or self.pods.has_uid(uid)

    def deleted(self) -> None:
        """Stops writing to the ElasticJob, which is being deleted or gone; its pods are served until they are gone."""
        if self.is_deleted:
            return
        self.is_deleted = self._record.is_gone = True
        self.pods.job_deleted()
        for task in self._keeping:
            task.cancel()
        self._is_ending = False  # it may be ending already for another reason
        self._end_if_deleted()

    async def _end(self) -> None:
        """Ends the pods in order, if they are deleted together with the ElasticJob."""
        if self.mode.word == OBSERVE:
            self.forget()
            return
        owner = await self._platform.owner.now() if self.pods.are_adopted else None
        why, all_pods = deletion.why_it_ends(self.document, owner), self.pods.all()
        pods = deletion.still_its(all_pods, self.document, owner)
        if not why or not self.has_begun or not any(map(deletion.goes, pods)):
            self.forget()
            return
        if len(pods) < len(all_pods):
            self.left_out = [pod for pod in all_pods if pod not in pods]
            self.pods.narrow(pods)
        self._pump.put(StopAsked(why, within=deletion.seconds_left(pods, time.time())))

    def leave_alone(self) -> None:
        """Ends supervision without changing anything of the job."""
        self.is_left_alone = True
        self.forget()

    def forget(self) -> None:
        """Stops the core; this master no longer handles the job."""
        self._forgotten = True
        self.pods.moved.set()
        self._pump.stop(0)
