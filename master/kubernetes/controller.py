"""All jobs of the cluster: which run here, and what the watches show of them.

An ElasticJob that is not over gets a `RunningJob`. Everything that the API server shows is kept as documents and handed
to the job that it belongs to; one whose job is not there yet waits here until it is. A job that ends stays known by its
uid, so that it is not begun again. One that is deleted runs on until its pods are gone too, and what its script saves
is saved; a job of its name that is applied meanwhile begins then. Nothing begins before jobs and pods have been listed
once: a master that ended in the middle of that leaves pods alone, and their job is ended first.

No callback here raises, whatever a document holds: each is fenced by itself (`master.kubernetes.api.fence`), and what
is wrong with an ElasticJob stands in its condition Valid.
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
from outrider.wire.ids import JobName
from outrider.wire.messages.membership import Hello

FROM_BEFORE = "job {!r} has begun anew, and this pod is from before: it waits until its owner replaces it"
WAITS = "A job of this name was deleted, and its pods are not gone yet: this one begins when they are."

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
        """`setting`: one of `modes.MODES`, for all jobs; `scope`: the only namespaces to be looked at; empty: all.
        `begin_again`: seconds until a job is tried again."""
        self.leadership = Leadership(lease, term, end)
        self._scope, self._term, self._policy, self._journals = scope, term, policy, journals
        self._api = api.writing_while(self.leadership.is_held)
        self._budgets = Budgets(self._api)
        self._shares = NamespaceShares(self._api)
        self._background = Background(log, "what was done for a job")
        self._patterns = JudgedPatterns(self._background, lambda job: self._job_changed("MODIFIED", job))
        self._limits = replace(limits, verdicts=self._patterns.verdicts)
        self.sidecars: Sidecars | None = None
        self.running: dict[JobName, RunningJob] = {}
        self._attempts = Attempts(term, self.leadership, begin_again, self._turn_away)
        self._waiting: dict[JobName, Document] = {}
        """Those that begin when the pods of one of their name are gone, which was deleted, or when all is listed."""
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
        """Of jobs that were left alone: the first number that no order has."""
        self._nodes = Nodes(self._node_changed)
        self._jobs: set[JobName] = set()
        """Every ElasticJob that there is, also those that are over."""

    def inbox(self, hello: Hello) -> Callable[[Event], None] | ForGood | HandsOff | Denied | None:
        found = self.running.get(hello.job)
        if self._modes.is_off(hello.job) or (found is not None and found.is_left_alone):
            return HandsOff(f"job {hello.job[:120]!r} is {self._modes.why_alone(hello.job)}")
        if (why := self._attempts.why_unserved(hello.job)) is not None:
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
        """Watches until it is cancelled."""
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
            group.create_task(self.leadership.follow(self._tell_all))

    def _tell_all(self, event: Event) -> None:
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
        """What an earlier master has left, once it is known."""
        if self._begins or not (self._jobs_were_listed and self._pods.are_listed):
            return
        self._begins = True
        waiting, self._waiting = self._waiting, {}
        for key in self._pods:
            with fenced(f"what is left of ElasticJob {key}"):
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
        is_going = adopts and deletion.is_deleted(job)  # its pods go before it
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
            pass  # it is looked at again, as it is by then
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
        """The pods that its owner has made since wait for a job."""
        self._ended.forget(key)
        for pod in [each for each in self._pods.of(key) if adoption.goes_on(each)][:1]:
            self._adopt_if_needed(key, pod)

    def _gone(self, key: JobName, uid: str) -> None:
        """The ElasticJob with this uid is deleted."""
        for known in (self._ended, self._refusals, self._modes, self._patterns, self._attempts):
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
        """Of the same name, applied after that one was deleted: its pods could not have their names yet, and would
        begin before the others have saved what these are to begin with."""
        is_new, self._waiting[key] = key not in self._waiting, job
        if is_new:
            record = JobRecord(self._api, job, self._term, list)
            record.add("WaitingForOldPods", WAITS, "normal", None, "", {})
            self._background.start(record.post_last_events())
        self._gone(key, before.uid)

    def _begin(self, key: JobName, job: Document, attempt: int = 0, before: Document | None = None) -> None:
        """`before`: what this process has run of it; another one has written that into the status."""
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
        self,
        key: JobName,
        job: Document,
        attempt: int = 0,
        accepted: Document | None = None,
        wrong: Sequence[str] = (),
    ) -> None:
        assert self.sidecars is not None
        namespace = job["metadata"]["namespace"]
        running = RunningJob(
            self._shares.api(namespace), job, self._term, self._policy, self.sidecars, self._journals,
            self.leadership.is_held, attempt, self._nodes.of, self._modes.of(key, job), self._orders.get(key, 1),
            partial(self._serve, key), self._limits, accepted, wrong, self._budgets, self._shares.beginning(namespace),
        )  # fmt: skip
        self.running[key] = running
        self._refusals.forget(key)
        if self._pods.are_listed:
            running.pods.listed(self._pods.of(key))
        self._background.start(self._run(key, running))

    def _serve(self, key: JobName) -> None:
        assert self.sidecars is not None
        self._attempts.served(key)
        self.sidecars.invite(key)

    def _refuse(self, key: JobName, job: Document, wrong: list[str]) -> None:
        """No webhook has looked at it: what is wrong stands in its conditions. One that runs is run as it was."""
        found = self.running.get(key)
        if found is not None and found.uid == job["metadata"].get("uid"):
            found.refuse(wrong)
            return
        self._refusals.refuse(key, job, wrong)

    async def _run(self, key: JobName, running: RunningJob) -> None:
        outcome = await self._attempts.run(key, running)
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
        """One that was deleted, and what was left of it is gone. Another of its name may begin."""
        if self.running.get(key) is not running:
            return
        del self.running[key]
        log.info("job %s is not there any more", key)
        following = self._waiting.pop(key, None)
        if following is not None:
            self._job_changed("MODIFIED", following)
        for pod in running.left_out[:1]:
            self._adopt_if_needed(key, pod)

    # -- who is supervised, and how -----------------------------------------------------------------------------------
    def _follow_mode(self, key: JobName, running: RunningJob, job: Document) -> None:
        """Another mode is another beginning, from the status and the members' Hellos, as a new master's is."""
        mode = self._modes.of(key, job)
        if mode.word == running.mode.word or running.is_left_alone or running.is_deleted:
            return
        log.warning("job %s: its mode is %s now%s", key, mode.word, f": {mode.why}" if mode.why else "")
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
        self._modes.forget(key)  # so that it is told now, after the last status of what ran
        self._job_changed("MODIFIED", running.document)

    def _look_at_mode(self, key: JobName) -> None:
        """A pod of another owner's, or the namespace, may say another."""
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
        """The pod of a job for which there is no ElasticJob, and which is no ElasticJob's own."""
        if self._modes.setting != OFF and key not in self._jobs and adoption.is_adoptable(pod):
            self._background.start(adoption.adopt_or_say(self._api, pod, self._limits))
