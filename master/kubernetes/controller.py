"""Runs all jobs of the cluster, and passes what the watches show to each of them.

Each ElasticJob that is not over gets a `RunningJob`. The documents of pods are kept here by job, also before their
ElasticJob is seen. A job that ends stays known by its uid, so that it is not started again. A deleted job runs until
its pods are gone too, so that its script can save; a job of the same name that is applied meanwhile starts after that.
No job starts before jobs and pods have been listed once: if an earlier master ended while it was ending a deleted job,
pods of that job may be left, and that job is ended first.

No callback here raises, whatever a document contains: each is fenced by itself (`master.kubernetes.api.fence`). What is
wrong with an ElasticJob is reported in its condition Valid.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from outrider.master.core.events import Event, NodeSeen
from outrider.master.core.k8s.elasticjob import accepted_spec, deletion, validation
from outrider.master.core.k8s.elasticjob import begin_anew as elasticjob_begin_anew
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.pods import observe
from outrider.master.core.k8s.values import identity, modes, phases, shapes
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.modes import OFF, SUPERVISE
from outrider.master.core.k8s.values.names import GROUP_VERSION, JOB, PLURAL, Document
from outrider.master.core.k8s.values.shapes import WrongDocument
from outrider.master.kubernetes import adoption
from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.api.fence import fenced, name_of, readable
from outrider.master.kubernetes.api.scope import ScopedWatch
from outrider.master.kubernetes.background import Background
from outrider.master.kubernetes.budgets import Budgets
from outrider.master.kubernetes.ended_jobs import EndedJobs
from outrider.master.kubernetes.job_attempts import BEGIN_AGAIN, Again, Attempts, Outcome
from outrider.master.kubernetes.job_modes import JobModes
from outrider.master.kubernetes.job_rounds import JobRounds
from outrider.master.kubernetes.job_runner import RunningJob
from outrider.master.kubernetes.judged_patterns import JudgedPatterns
from outrider.master.kubernetes.leadership import Leadership
from outrider.master.kubernetes.lease import Lease
from outrider.master.kubernetes.namespace_shares import NamespaceShares
from outrider.master.kubernetes.namespaces import Namespaces
from outrider.master.kubernetes.nodes import Nodes
from outrider.master.kubernetes.pods_by_job import PodsByJob
from outrider.master.kubernetes.refusals import Refusals
from outrider.master.kubernetes.status_writer import JobRecord
from outrider.master.service.sidecars import Denied, ForGood, HandsOff, Sidecars
from outrider.master.service.telemetry.job import Telemetry
from outrider.wire.ids import JobName
from outrider.wire.messages.membership import Hello

FROM_BEFORE = "job {!r} was restarted; this pod is from before the restart and waits until its owner replaces it"
WAITS = "Pods of a deleted job of the same name still exist: this job starts when they are gone."

log = logging.getLogger("fleet")


class Fleet:
    def __init__(
        self,
        api: Api,
        term: int,
        policy: Policy,
        journals: Path,
        lease: Lease,
        end: Callable[[int], None],
        setting: str = SUPERVISE,
        limits: Limits = USUAL,
        scope: Sequence[str] = (),
        begin_again: float = BEGIN_AGAIN,
    ) -> None:
        """`setting`: mode of all jobs, one of `modes.MODES`. `scope`: namespaces that are watched; empty: all.
        `begin_again`: seconds until a job is tried again."""
        self.leadership = Leadership(lease, term, end)
        self._scope, self._term, self._policy, self._journals = scope, term, policy, journals
        self._api = api.writing_while(self.leadership.is_held)
        self._budgets = Budgets(self._api)
        self._shares = NamespaceShares(self._api)
        self._background = Background(log, "background work for a job")
        self._patterns = JudgedPatterns(self._background, lambda job: self._job_changed("MODIFIED", job))
        self._limits = replace(limits, verdicts=self._patterns.verdicts)
        self.sidecars: Sidecars | None = None
        self.telemetry: Telemetry | None = None
        self.running: dict[JobName, RunningJob] = {}
        self.attempts = Attempts(term, self.leadership, begin_again, self._turn_away)
        self._waiting: dict[JobName, Document] = {}
        """Jobs that wait until jobs and pods have been listed, or until the pods of a deleted job of their name are
        gone."""
        self._refusals = Refusals(self._api, self._background)
        self._pods = PodsByJob()
        self._jobs_were_listed = self._begins = False
        self._namespaces = Namespaces(self._namespace_changed)
        self._modes = JobModes(self._api, term, setting, self._pods, self._namespaces, self._background)
        self._ended = EndedJobs(
            self._api, term, self._limits, self.leadership, self._pods, self._background, begin_again,
            self._may_begin_anew, lambda job: self._job_changed("MODIFIED", job),
        )  # fmt: skip
        self._rounds = JobRounds(self.running, self._ended, ends_jobs=setting == SUPERVISE)
        self._orders: dict[JobName, int] = {}
        """First unused order number of each job that was left alone."""
        self._nodes = Nodes(self._node_changed)
        self._jobs: set[JobName] = set()
        """All existing ElasticJobs, also those that are over."""

    def inbox(self, hello: Hello) -> Callable[[Event], None] | ForGood | HandsOff | Denied | None:
        found = self.running.get(hello.job)
        if self._modes.is_off(hello.job) or (found is not None and found.is_left_alone):
            return HandsOff(f"job {hello.job[:120]!r} is {self._modes.why_alone(hello.job)}")
        if (why := self.attempts.why_unserved(hello.job)) is not None:
            return HandsOff(why)
        if found is None and hello.job in self._ended:
            return self._ended.answer(hello)
        if found is not None and found.pods.is_of_before(hello.uid):
            return Denied(FROM_BEFORE.format(hello.job), "job", retry_after=elasticjob_begin_anew.LOOK_AGAIN)
        return found.put if found is not None and found.has_begun and found.serves(hello.uid) else None

    def _turn_away(self, key: JobName, answer: HandsOff) -> None:
        assert self.sidecars is not None
        self.sidecars.turn_away(key, answer)

    async def run(self) -> None:
        """Watches the cluster and runs its jobs until cancelled."""
        api, scope = self._api, self._scope
        jobs = ScopedWatch(api, scope, f"/apis/{GROUP_VERSION}", PLURAL, self._jobs_listed, self._job_changed)
        pods = ScopedWatch(api, scope, "/api/v1", "pods", self._list_pods, self._pod_changed, labelSelector=JOB,
                           kept=observe.kept)  # fmt: skip
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.watch(api))
            group.create_task(self._namespaces.watch(api))
            group.create_task(jobs.run())
            group.create_task(pods.run())
            group.create_task(self._rounds.run())
            group.create_task(self.leadership.follow(self._put_to_all))

    def _put_to_all(self, event: Event) -> None:
        for running in self.running.values():
            running.put(event)

    def _namespace_changed(self, name: str) -> None:
        for key in [key for key in (*self.running, *self._modes) if key.partition("/")[0] == name]:
            self._look_at_mode(key)

    def _node_changed(self, node: NodeSeen) -> None:
        for key, running in self.running.items():
            with fenced(f"Node {node.node} for job {key}"):
                running.pods.node_changed(node)

    # -- jobs -------------------------------------------------------------------------------------------------------
    def _jobs_listed(self, jobs: list[Document]) -> None:
        jobs = readable("ElasticJob", jobs, {})
        self._jobs = there = {identity.key_of(job) for job in jobs}
        self._waiting = {key: job for key, job in self._waiting.items() if key in there}
        self._modes.keep_only(there)
        self._patterns.keep_only(there)
        for key in [key for key in self.running if key not in there]:
            self._gone(key, self.running[key].uid)
        for key in [key for key in self._ended if key not in there]:
            self._deleted_after_its_end(key)
        for job in jobs:
            self._job_changed("MODIFIED", job)
        self._jobs_were_listed = True
        self._begin_all()

    def _begin_all(self) -> None:
        """Starts all jobs once jobs and pods have been listed, beginning with deleted jobs whose pods are left."""
        if self._begins or not (self._jobs_were_listed and self._pods.are_listed):
            return
        self._begins = True
        waiting, self._waiting = self._waiting, {}
        for key in self._pods:
            with fenced(f"the deleted ElasticJob {key}, of which pods are left,"):
                left = deletion.left_by(key, self._pods.of(key), waiting.get(key), time.time())
                if left is not None and key not in self._ended and self._modes.of(key, left).word != OFF:
                    self._start(key, left)
                    self.running[key].deleted()
        for job in waiting.values():
            self._job_changed("MODIFIED", job)

    def _job_changed(self, kind: str, job: Document) -> None:
        with fenced(name_of("ElasticJob", job), lambda why: self._refuse(identity.key_of(job), job, [why])):
            if not shapes.identity_of(job).uid:
                raise WrongDocument("metadata.uid", None, "text")
            self._take_job(kind, job)

    def _take_job(self, kind: str, job: Document) -> None:
        key, uid = identity.key_of(job), job["metadata"]["uid"]
        (self._jobs.discard if kind == "DELETED" else self._jobs.add)(key)
        found = self.running.get(key)
        adopts = bool(mapping(job.get("spec")).get("adopts"))
        is_going = adopts and deletion.is_deleted(job)  # its pods are deleted before the ElasticJob is
        if kind == "DELETED" or (is_going and found is not None and found.uid == uid):
            was_over = found is None and key in self._ended
            self._gone(key, uid)
            if was_over:
                self._deleted_after_its_end(key)
        elif not self._begins:
            self._waiting[key] = job
        elif found is not None and found.uid != uid:
            self._wait(key, found, job)
        elif self._patterns.must_be_judged(key, job):
            pass  # judging the patterns calls _job_changed again with the newest document
        elif found is not None:
            found.changed(job)
            self._follow_mode(key, found, job)
        elif phases.is_over(job):
            self._ended.add(key, job)
        elif not self._ended.has_ended(key, job):
            self._ended.forget(key)
            self._begin(key, job)
            if is_going and key in self.running:
                self._gone(key, uid)

    def _may_begin_anew(self, key: JobName, job: Document) -> bool:
        return key not in self.running and self._modes.of(key, job).word != OFF

    def _deleted_after_its_end(self, key: JobName) -> None:
        """Adopts the pods that the owner has created since the end, as those wait for a job."""
        self._ended.forget(key)
        for pod in [each for each in self._pods.of(key) if adoption.is_live(each)][:1]:
            self._adopt_if_needed(key, pod)

    def _gone(self, key: JobName, uid: str) -> None:
        """Handles the deletion of the ElasticJob with this uid."""
        for known in (self._ended, self._refusals, self._modes, self._patterns, self.attempts):
            known.forget(key)
        self._orders.pop(key, None)
        if key in self._waiting and self._waiting[key]["metadata"]["uid"] == uid:
            del self._waiting[key]
        found = self.running.get(key)
        if found is None or found.uid != uid:
            return
        found.deleted()
        if found.has_ended:
            self._forget(key, found)

    def _wait(self, key: JobName, before: RunningJob, job: Document) -> None:
        """Delays a job that was applied after a job of the same name was deleted.

        Its pods cannot have their names yet, and would start before the old pods have saved the checkpoint to start
        from.
        """
        is_new, self._waiting[key] = key not in self._waiting, job
        if is_new:
            record = JobRecord(self._api, job, self._term, list)
            record.add("WaitingForOldPods", WAITS, "normal", None, "", {})
            self._background.start(record.post_last_events())
        self._gone(key, before.uid)

    def _begin(self, key: JobName, job: Document, attempt: int = 0, before: Document | None = None) -> None:
        """`before`: the spec with which this process has run the job; an earlier process left it in the status."""
        mode = self._modes.of(key, job)
        if mode.word == OFF:
            self._modes.leave_off(key, job, mode)
            return
        self._modes.forget(key)
        wrong = validation.problems(job, limits=self._limits)
        accepted = (before or accepted_spec.kept_by(job)) if wrong else None
        if wrong and (accepted is None or validation.problems(accepted, limits=self._limits)):
            self._refuse(key, job, wrong)
        else:
            self._start(key, job, attempt, accepted, wrong)

    def _start(
        self, key: JobName, job: Document, attempt: int = 0, accepted: Document | None = None, wrong: Sequence[str] = ()
    ) -> None:
        assert self.sidecars is not None
        namespace = job["metadata"]["namespace"]
        running = RunningJob(
            self._shares.api(namespace), job, self._term, self._policy, self.sidecars, self._journals,
            self.leadership.is_held, attempt, self._nodes.of, self._modes.of(key, job), self._orders.get(key, 1),
            partial(self._serve, key), self._limits, accepted, wrong, self._budgets, self._shares.beginning(namespace),
        )  # fmt: skip
        running.export_to(self.telemetry)
        self.running[key] = running
        self._refusals.forget(key)
        if self._pods.are_listed:
            running.pods.listed(self._pods.of(key))
        self._background.start(self._run(key, running))

    def _serve(self, key: JobName) -> None:
        assert self.sidecars is not None
        self.attempts.served(key)
        self.sidecars.invite(key)

    def _refuse(self, key: JobName, job: Document, wrong: list[str]) -> None:
        """Reports an invalid spec that no webhook has refused in the conditions; a running job keeps its last spec."""
        found = self.running.get(key)
        if found is not None and found.uid == job["metadata"].get("uid"):
            found.refuse(wrong)
            return
        self._refusals.refuse(key, job, wrong)

    async def _run(self, key: JobName, running: RunningJob) -> None:
        outcome = await self.attempts.run(key, running)
        if isinstance(outcome, Again):
            self._begin_again(key, running, outcome.attempt)
        elif outcome is Outcome.LEFT_ALONE:
            self._was_left_alone(key, running)
        elif outcome is Outcome.DELETED:
            self._forget(key, running)
        elif outcome is Outcome.OVER and self.running.get(key) is running:
            del self.running[key]
            self._ended.add(key, running.document)
            log.info("job %s is over", key)

    def _begin_again(self, key: JobName, running: RunningJob, attempt: int) -> None:
        if self.running.get(key) is not running:
            return
        del self.running[key]
        with fenced(f"ElasticJob {key}", lambda why: self._refuse(key, running.newest, [why])):
            self._begin(key, running.newest, attempt, running.document)

    def _forget(self, key: JobName, running: RunningJob) -> None:
        """Forgets a deleted job whose pods are gone; a waiting job of the same name starts."""
        if self.running.get(key) is not running:
            return
        del self.running[key]
        log.info("job %s and its pods are gone", key)
        following = self._waiting.pop(key, None)
        if following is not None:
            self._job_changed("MODIFIED", following)
        for pod in running.left_out[:1]:
            self._adopt_if_needed(key, pod)

    # -- supervised, observed or switched off -------------------------------------------------------------------------
    def _follow_mode(self, key: JobName, running: RunningJob, job: Document) -> None:
        """Starts the job's core again if the mode has changed, from the status and the members' Hellos, as a new master
        does."""
        mode = self._modes.of(key, job)
        if mode.word == running.mode.word or running.is_left_alone or running.is_deleted:
            return
        log.warning("job %s: the mode is now %s%s", key, mode.word, f": {mode.why}" if mode.why else "")
        if mode.word == OFF:
            self._modes.switch_off(key, job, mode)
        running.leave_alone()
        self._turn_away(key, HandsOff(f"job {key!r} is {self._modes.why_alone(key)}"))

    def _was_left_alone(self, key: JobName, running: RunningJob) -> None:
        if self.running.get(key) is not running:
            return
        self._orders[key] = running.next_order
        if running.is_deleted:
            self._forget(key, running)
            return
        del self.running[key]
        self._modes.forget(key)  # so that the mode is reported now, after the last status of the core that ended
        self._job_changed("MODIFIED", running.document)

    def _look_at_mode(self, key: JobName) -> None:
        """Follows a mode that an annotation of a pod or of the namespace may have changed."""
        if (found := self.running.get(key)) is not None:
            self._follow_mode(key, found, found.document)
        elif (job := self._modes.switched_off(key)) is not None:
            self._job_changed("MODIFIED", job)

    # -- pods -------------------------------------------------------------------------------------------------------
    def _list_pods(self, pods: list[Document]) -> None:
        self._pods.listed(pods)
        for key, running in self.running.items():
            with fenced(f"the pods of ElasticJob {key}"):
                running.pods.listed(self._pods.of(key))
        self._begin_all()
        for key in self._pods:
            with fenced(f"the pods of ElasticJob {key}"):
                self._adopt_if_needed(key, self._pods.of(key)[0])
                self._ended.look_for_another_beginning(key)

    def _pod_changed(self, kind: str, pod: Document) -> None:
        with fenced(name_of("Pod", pod)):
            shapes.check(pod, shapes.POD)
            self._take_pod(kind, pod)

    def _take_pod(self, kind: str, pod: Document) -> None:
        taken = self._pods.take(kind, pod)
        if taken is None:
            return
        key, kind = taken
        running = self.running.get(key)
        if modes.says_something(pod) or self._modes.is_off(key) or (running is not None and running.mode.why):
            self._look_at_mode(key)
        if running is not None and running.pods.has(pod):
            running.pod_changed(kind, pod)
        elif kind == "ADDED":
            self._adopt_if_needed(key, pod)
            self._ended.look_for_another_beginning(key, pod)

    def _adopt_if_needed(self, key: JobName, pod: Document) -> None:
        """Adopts a live pod of another controller if its job has no ElasticJob."""
        if self._modes.setting != OFF and key not in self._jobs and adoption.is_adoptable(pod):
            self._background.start(adoption.adopt_or_log(self._api, pod, self._limits))
