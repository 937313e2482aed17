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
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from outrider.master.core.events import Event, LeaseLapsed, LeaseRegained, NodeSeen, TurnTold
from outrider.master.core.k8s.elasticjob import accepted_spec, deletion, run_policy, status, validation
from outrider.master.core.k8s.elasticjob import begin_anew as elasticjob_begin_anew
from outrider.master.core.k8s.elasticjob.admission import Candidate, Queue
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.owners import revisions
from outrider.master.core.k8s.pods import disappeared, observe
from outrider.master.core.k8s.pods import nodes as node_documents
from outrider.master.core.k8s.values import modes, phases, shapes
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.identity import key_of
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.modes import OFF, SUPERVISE, Mode
from outrider.master.core.k8s.values.names import GROUP_VERSION, JOB, MEMBER, PLURAL, Document
from outrider.master.core.k8s.values.shapes import WrongDocument
from outrider.master.kubernetes import adoption
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.fence import fenced, name_of, readable, said
from outrider.master.kubernetes.api.scope import ScopedWatch
from outrider.master.kubernetes.api.watch import Watch
from outrider.master.kubernetes.budgets import Budgets
from outrider.master.kubernetes.job_runner import RunningJob
from outrider.master.kubernetes.lease import Lease
from outrider.master.kubernetes.nodes import Nodes
from outrider.master.kubernetes.status_writer import JobRecord, Superseded, now, path_of
from outrider.master.service.pattern_compiler import NotJudged, Patterns
from outrider.master.service.sidecars import Denied, ForGood, HandsOff, Sidecars
from outrider.runtime.pump import CORE_FAILED
from outrider.wire.ids import JobName
from outrider.wire.messages.membership import Hello

NAMESPACES = "/api/v1/namespaces"
FROM_BEFORE = "job {!r} has begun anew, and this pod is from before: it waits until its owner replaces it"
WAITS = "A job of this name was deleted, and its pods are not gone yet: this one begins when they are."
SLOWEST = 300.0
CORE_HAS_FAILED = "CoreFailed"
"""Reason of the condition Supervised while a job waits to be begun again."""
UNSERVED = (
    "A fault of Outrider itself: what looks after this job has failed ({}). Its ranks train on, and nothing that "
    "happens to them is mended until it begins again, in {} s."
)
LOOK_EVERY = 5.0
"""Seconds between two looks at who lacks room."""
BEGIN_AGAIN = 5.0
ASK_AT_ONCE = 16
"""Requests of all jobs of one namespace that are on their way: the pool has 100 connections, and others want some."""
BEGIN_AT_ONCE = 8
"""Jobs of a namespace whose status is claimed at one time: a new leader has all of them before it, and its Lease to
keep."""
"""Seconds after which a job is tried again whose status could not be claimed."""

LOOK_AT_LEASE_EVERY = 0.5
LAPSED = "The API server takes no renewal of the master's Lease, and may be away."
SUPERSEDED = 3
"""The process's exit code, as where it reads in the Lease that it is another's."""

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
        self._scope, self._pause = scope, begin_again
        self._api, self._term, self._policy, self._journals = api.writing_while(self._is_master), term, policy, journals
        self._lease, self._end = lease, end
        self._budgets = Budgets(self._api)
        self._asking: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._beginning: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By namespace: no job waits behind the many of another one."""
        self._patterns = Patterns()
        self._limits = replace(limits, verdicts=self._patterns.verdicts)
        self._judged_first: dict[JobName, Document] = {}
        """Those whose patterns are being compiled, as they were shown last."""
        self.sidecars: Sidecars | None = None
        self.running: dict[JobName, RunningJob] = {}
        self._over: dict[JobName, elasticjob_begin_anew.Ended] = {}
        self._told_to_wait: dict[JobName, str] = {}
        """Those among them, by uid, whose Events say that further pods wait."""
        self._made: dict[JobName, dict[str, revisions.Made]] = {}
        """By whom pods of theirs were made, by the pods' uids, as far as that was read."""
        self._looking: set[JobName] = set()
        """Those among them of which a pod's owners are being read."""
        self._kept: dict[JobName, Document] = {}
        """Those among them that are deleted some time after their end."""
        self._waiting: dict[JobName, Document] = {}
        """Those that begin when the pods of one of their name are gone, which was deleted, or when all is listed."""
        self._refused: dict[JobName, list[str]] = {}
        self._pods: dict[JobName, dict[str, Document]] = {}
        self._pods_listed = self._jobs_were_listed = self._begins = False
        self._setting = setting
        self._off: dict[JobName, tuple[Document, Mode]] = {}
        """Those that are switched off, and by whom."""
        self._failures: dict[JobName, int] = {}
        """How often a job's core has failed without having run for long between."""
        self._unserved: dict[JobName, str] = {}
        """Why those wait to be begun again."""
        self._orders: dict[JobName, int] = {}
        """Of jobs that were left alone: the first number that no order has."""
        self._namespaces: dict[str, Document] = {}
        """What is annotated on them."""
        self._nodes = Nodes(self._node_changed)
        self._jobs: set[JobName] = set()
        """Every ElasticJob that there is, also those that are over."""
        self._tasks: set[asyncio.Task[None]] = set()

    def _is_master(self) -> bool:
        return self._lease.is_held

    def inbox(self, hello: Hello) -> Callable[[Event], None] | ForGood | HandsOff | Denied | None:
        found = self.running.get(hello.job)
        if self._setting == OFF or hello.job in self._off or (found is not None and found.is_left_alone):
            return HandsOff(f"job {hello.job[:120]!r} is {self._why_alone(hello.job)}")
        if hello.job in self._unserved:
            return HandsOff(self._unserved[hello.job])
        if found is None and hello.job in self._over:
            return self._after_the_end(hello)
        if found is not None and found.pods.is_of_before(hello.uid):
            return Denied(FROM_BEFORE.format(hello.job), "job", retry_after=elasticjob_begin_anew.LOOK_AGAIN)
        return found.put if found is not None and found.has_begun and found.serves(hello.uid) else None

    def _after_the_end(self, hello: Hello) -> ForGood | Denied:
        key, over = hello.job, self._over[hello.job]
        pod = next((pod for pod in self._pods.get(key, {}).values() if pod["metadata"].get("uid") == hello.uid), None)
        found = elasticjob_begin_anew.judged(key, over, hello.uid, pod, self._made.get(key, {}).get(hello.uid))
        if pod is not None:
            self._look_for_another_beginning(key, pod)
        if not isinstance(found, elasticjob_begin_anew.Retry):
            return ForGood(found.reason)
        if found.seconds == elasticjob_begin_anew.LOOK_AGAIN and self._told_to_wait.get(key) != over.uid:
            self._told_to_wait[key] = over.uid
            record = JobRecord(self._api, over.job, self._term, list)
            record.add("PodsWait", found.reason, "warning", None, "", {})
            self._spawn(record.post_last_events())
        return Denied(found.reason, "job", retry_after=found.seconds)

    def _look_for_another_beginning(self, key: JobName, pod: Document | None = None) -> None:
        """Of a job that is over, if this pod, or else the newest, may begin it anew."""
        over = self._over.get(key)
        if over is None or key in self.running or key in self._looking or self._setting == OFF:
            return
        pods = [pod] if pod is not None else list(self._pods.get(key, {}).values())
        pods = [each for each in pods if elasticjob_begin_anew.may_begin(over, each)]
        if pods and self._mode(key, over.job).word != OFF:
            self._looking.add(key)
            self._spawn(self._begin_if_anew(key, over, max(pods, key=_made_at)))

    async def _begin_if_anew(self, key: JobName, over: elasticjob_begin_anew.Ended, pod: Document) -> None:
        try:
            owner = await adoption.top_owner(self._api, pod)
            made = self._note_made(key, pod, revisions.made(pod, owner))
            if why := elasticjob_begin_anew.why_anew(over, pod, made):
                await self._begin_anew(key, over, pod, owner, why)
        except Superseded as error:
            if not await self._is_superseded(error):
                self._note_made(key, pod, revisions.UNREADABLE)
        except Exception as error:  # its owner's document may be anything
            self._note_made(key, pod, revisions.UNREADABLE)
            is_ours = not isinstance(error, ApiError | ValueError)
            log.warning("job %s does not begin anew with %s: %s", key, name_of("Pod", pod), error, exc_info=is_ours)
            await asyncio.sleep(self._pause)
        finally:
            self._looking.discard(key)

    def _note_made(self, key: JobName, pod: Document, made: revisions.Made) -> revisions.Made:
        there = {each["metadata"].get("uid") for each in self._pods.get(key, {}).values()}
        known = {uid: each for uid, each in self._made.get(key, {}).items() if uid in there}
        self._made[key] = {**known, pod["metadata"]["uid"]: made}
        return made

    async def _begin_anew(
        self, key: JobName, over: elasticjob_begin_anew.Ended, pod: Document, owner: Document, why: str
    ) -> None:
        record = JobRecord(self._api, over.job, self._term, list)
        since = elasticjob_begin_anew.since(over, pod, self._pods.get(key, {}).values())
        begun = await record.begin_anew(adoption.job_for(owner, pod, self._limits), since)
        if begun is None:
            return
        log.info("job %s begins anew: %s", key, why)
        record.add("JobBegunAnew", f"The job begins anew: {why}.", "normal", None, "", {})
        self._forget_end(key)
        self._job_changed("MODIFIED", begun)
        await record.post_last_events()

    def _why_alone(self, key: JobName) -> str:
        mode = self._off[key][1] if key in self._off else Mode(OFF, f"the master's {modes.SETTING} is {OFF}")
        return f"switched off: {mode.why}" if self._setting == OFF or key in self._off else "about to be served anew"

    async def run(self) -> None:
        """Watches until it is cancelled."""
        api, scope = self._api, self._scope
        jobs = ScopedWatch(api, scope, f"/apis/{GROUP_VERSION}", PLURAL, self._jobs_listed, self._job_changed)
        pods = ScopedWatch(api, scope, "/api/v1", "pods", self._list_pods, self._pod_changed, labelSelector=JOB,
                           kept=observe.kept)  # fmt: skip
        nodes = Watch(self._api, "/api/v1/nodes", self._nodes.listed, self._nodes.shown, node_documents.trimmed)
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            group.create_task(self._watch_namespaces())
            group.create_task(jobs.run())
            group.create_task(pods.run())
            group.create_task(self._look_around())
            group.create_task(self._follow_lease())

    async def _follow_lease(self) -> None:
        """Every core is told when it runs out, and when it is held again; `Lease.keep` ends where another has it."""
        was_held = True
        while True:
            await asyncio.sleep(LOOK_AT_LEASE_EVERY)
            if self._is_master() == was_held:
                continue
            was_held = not was_held
            log.warning("the Lease %s", "is held again" if was_held else "has run out: only saved worlds begin again")
            event = LeaseRegained() if was_held else LeaseLapsed(LAPSED)
            for running in self.running.values():
                running.put(event)

    def superseded(self, term: int) -> None:
        """A master says that it has this term."""
        if term > self._term:
            log.error("there is a master of term %d: this one, of term %d, ends", term, self._term)
            self._end(SUPERSEDED)

    async def _watch_namespaces(self) -> None:
        """Where that is allowed: what is annotated on them counts nowhere else."""
        try:
            await self._api.get(NAMESPACES, limit="1")
        except ApiError as error:
            if error.status == 403:
                log.info("namespaces may not be read here: annotations of theirs are not followed")
                return
        await Watch(self._api, NAMESPACES, self._namespaces_listed, self._namespace_changed, modes.trimmed).run()

    def _namespaces_listed(self, namespaces: list[Document]) -> None:
        there = {namespace["metadata"]["name"] for namespace in readable("Namespace", namespaces, {})}
        for name in [name for name in self._namespaces if name not in there]:
            self._namespace_changed("DELETED", {"metadata": {"name": name}})
        for namespace in namespaces:
            self._namespace_changed("MODIFIED", namespace)

    def _namespace_changed(self, kind: str, namespace: Document) -> None:
        with fenced(name_of("Namespace", namespace)):
            shapes.check(namespace, {"metadata": shapes.METADATA})
            self._take_namespace(kind, namespace)

    def _take_namespace(self, kind: str, namespace: Document) -> None:
        """Most say nothing of ours."""
        name = namespace["metadata"]["name"]
        before = self._namespaces.pop(name, {})
        if kind != "DELETED" and modes.says_something(namespace):
            self._namespaces[name] = mapping(namespace["metadata"]["annotations"])
        if self._namespaces.get(name, {}) != before:
            for key in [key for key in (*self.running, *self._off) if key.partition("/")[0] == name]:
                self._look_at_mode(key)

    def _node_changed(self, node: NodeSeen) -> None:
        for key, running in self.running.items():
            with fenced(f"Node {node.node} for job {key}"):
                running.pods.node_changed(node)

    async def _look_around(self) -> None:
        """Jobs that lack room wait in order; one that has had its time ends, or is deleted."""
        queue = Queue()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            with fenced("the look at all jobs"):
                if self._setting == SUPERVISE:
                    await self._look_at_times(time.time())
                for name, behind in queue.look(self._candidates(), time.monotonic()):
                    self.running[name].put(TurnTold(behind))

    def _candidates(self) -> list[Candidate]:
        found = []
        for key, running in self._begun():
            with fenced(f"ElasticJob {key}"):
                found.append(running.candidate())
        return found

    def _begun(self) -> list[tuple[JobName, RunningJob]]:
        return [(key, each) for key, each in self.running.items() if each.has_begun and not each.is_deleted]

    async def _look_at_times(self, unix_time: float) -> None:
        for key, running in self._begun():
            with fenced(f"ElasticJob {key}"):
                running.look_at_time(unix_time)
        for key, job in list(self._kept.items()):
            with fenced(f"ElasticJob {key}"):
                expires_at = run_policy.expires_at(job)
                if expires_at is not None and expires_at <= unix_time and self._is_master():
                    del self._kept[key]
                    await self._expire(key, job)

    async def _expire(self, key: JobName, job: Document) -> None:
        record = JobRecord(self._api, job, self._term, list)
        record.add("JobExpired", run_policy.why_it_goes(job), "normal", None, "", {})
        await record.post_last_events()
        preconditions = {"preconditions": {"uid": record.uid}, "propagationPolicy": "Background"}
        try:
            await self._api.delete(record.path, {"apiVersion": "v1", "kind": "DeleteOptions", **preconditions})
        except ApiError as error:
            if not (error.is_absent or error.is_conflict):
                log.warning("job %s could not be deleted: %s; it is tried again", key, error)
                self._kept[key] = job

    # -- jobs -------------------------------------------------------------------------------------------------------
    def _jobs_listed(self, jobs: list[Document]) -> None:
        jobs = readable("ElasticJob", jobs, {})
        self._jobs = there = {key_of(job) for job in jobs}
        for key in [key for key in self._waiting if key not in there]:
            del self._waiting[key]
        for left in (self._off, self._judged_first):
            for key in [key for key in left if key not in there]:
                left.pop(key)
        for key in [key for key in self.running if key not in there]:
            self._gone(key, self.running[key].uid)
        for key in [key for key in self._over if key not in there]:
            self._deleted_after_its_end(key)
        for job in jobs:
            self._job_changed("MODIFIED", job)
        self._jobs_were_listed = True
        self._begin_all()

    def _begin_all(self) -> None:
        """What an earlier master has left, once it is known."""
        if self._begins or not (self._jobs_were_listed and self._pods_listed):
            return
        self._begins = True
        waiting, self._waiting = self._waiting, {}
        for key, pods in self._pods.items():
            with fenced(f"what is left of ElasticJob {key}"):
                left = deletion.left_by(key, list(pods.values()), waiting.get(key), time.time())
                if left is not None and key not in self._over and self._mode(key, left).word != OFF:
                    self._start(key, left)
                    self.running[key].deleted()
        for job in waiting.values():
            self._job_changed("MODIFIED", job)

    def _job_changed(self, kind: str, job: Document) -> None:
        with fenced(name_of("ElasticJob", job), lambda why: self._refuse(key_of(job), job, [why])):
            if not shapes.identity_of(job).uid:
                raise WrongDocument("metadata.uid", None, "text")
            self._take_job(kind, job)

    def _take_job(self, kind: str, job: Document) -> None:
        key, uid = key_of(job), job["metadata"]["uid"]
        (self._jobs.discard if kind == "DELETED" else self._jobs.add)(key)
        found = self.running.get(key)
        is_going = deletion.is_deleted(job) and bool(mapping(job.get("spec")).get("adopts"))  # its pods go before it
        if kind == "DELETED" or (is_going and found is not None and found.uid == uid):
            was_over = found is None and key in self._over
            self._gone(key, uid)
            if was_over:
                self._deleted_after_its_end(key)
        elif not self._begins:
            self._waiting[key] = job
        elif found is not None and found.uid != uid:
            self._wait(key, found, job)
        elif self._must_be_judged(key, job):
            pass
        elif found is not None:
            found.changed(job)
            self._follow_mode(key, found, job)
        elif _phase(job) in phases.OVER:
            self._is_over(key, job)
        elif (
            key not in self._over or self._over[key].uid != uid or elasticjob_begin_anew.is_begun(job, self._over[key])
        ):
            self._forget_end(key)
            self._begin(key, job)
            if is_going and key in self.running:
                self._gone(key, uid)

    def _must_be_judged(self, key: JobName, job: Document) -> bool:
        """Its patterns are compiled elsewhere first; then it is looked at again, as it is by then."""
        is_judged = deletion.is_deleted(job) or _phase(job) in phases.OVER or not self._patterns.unknown(job)
        if is_judged:
            self._judged_first.pop(key, None)
            return False
        is_new, self._judged_first[key] = key not in self._judged_first, job
        if is_new:
            self._spawn(self._judge(key))
        return True

    async def _judge(self, key: JobName) -> None:
        while (job := self._judged_first.get(key)) is not None and self._patterns.unknown(job):
            try:
                await self._patterns.learn(job)
            except NotJudged as error:
                log.warning("job %s waits for its patterns: %s; it is tried again in %g s", key, error, BEGIN_AGAIN)
                await asyncio.sleep(BEGIN_AGAIN)
        if (newest := self._judged_first.pop(key, None)) is not None:
            self._job_changed("MODIFIED", newest)

    def _is_over(self, key: JobName, job: Document) -> None:
        self._over[key] = elasticjob_begin_anew.ended(job)
        self._kept.pop(key, None)
        if run_policy.expires_at(job) is not None and not deletion.is_deleted(job):
            self._kept[key] = job
        self._look_for_another_beginning(key)

    def _forget_end(self, key: JobName) -> None:
        for known in (self._over, self._kept, self._told_to_wait, self._made):
            known.pop(key, None)

    def _deleted_after_its_end(self, key: JobName) -> None:
        """The pods that its owner has made since wait for a job."""
        self._forget_end(key)
        pods = self._pods.get(key, {}).values()
        waits = (pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and not observe.is_over(pod))
        for pod in [*waits][:1]:
            self._adopt_if_needed(key, pod)

    def _gone(self, key: JobName, uid: str) -> None:
        """The ElasticJob with this uid is deleted."""
        for known in (
            self._over, self._kept, self._refused, self._off, self._orders, self._judged_first, self._unserved,
            self._failures, self._told_to_wait, self._made,
        ):  # fmt: skip
            known.pop(key, None)
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
            record.add("JobWaits", WAITS, "normal", None, "", {})
            self._spawn(record.post_last_events())
        self._gone(key, before.uid)

    def _begin(self, key: JobName, job: Document, attempt: int = 0, before: Document | None = None) -> None:
        """`before`: what this process has run of it; another one has written that into the status."""
        mode = self._mode(key, job)
        if mode.word == OFF:
            self._leave_off(key, job, mode)
            return
        self._off.pop(key, None)
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
        api = self._api.in_turn(self._asking.setdefault(namespace, asyncio.Semaphore(ASK_AT_ONCE)))
        beginning = self._beginning.setdefault(namespace, asyncio.Semaphore(BEGIN_AT_ONCE))
        running = RunningJob(
            api, job, self._term, self._policy, self.sidecars, self._journals, self._is_master, attempt,
            self._nodes.of, self._mode(key, job), self._orders.get(key, 1), partial(self._serve, key),
            self._limits, accepted, wrong, self._budgets, beginning,
        )  # fmt: skip
        self.running[key] = running
        self._refused.pop(key, None)
        if self._pods_listed:
            running.pods.listed(list(self._pods.get(key, {}).values()))
        self._spawn(self._run(key, running))

    def _serve(self, key: JobName) -> None:
        assert self.sidecars is not None
        self._unserved.pop(key, None)
        self.sidecars.invite(key)

    def _refuse(self, key: JobName, job: Document, wrong: list[str]) -> None:
        """No webhook has looked at it: what is wrong stands in its conditions. One that runs is run as it was."""
        found = self.running.get(key)
        if found is not None and found.uid == job["metadata"].get("uid"):
            found.refuse(wrong)
            return
        if self._refused.get(key) == wrong:
            return
        self._refused[key] = wrong
        log.warning("%s is not run: %s", key, "; ".join(wrong))
        self._spawn(self._write_refusal(job, wrong))

    async def _write_refusal(self, job: Document, wrong: list[str]) -> None:
        """Whatever the document is, so much can be written; one that changes meanwhile is refused anew."""
        identity = shapes.identity_of(job)
        patch = status.refused(job, wrong, now())
        try:
            await self._api.patch(f"{path_of(identity.namespace, identity.name)}/status", patch)
        except ApiError as error:
            self._refused.pop(key_of(job), None)  # the next list refuses it again
            if not (error.is_absent or error.is_conflict):
                log.warning("what is wrong with ElasticJob %s could not be written: %s", identity, error)

    async def _run(self, key: JobName, running: RunningJob) -> None:
        log.info("job %s runs here, with term %d", key, self._term)
        began = time.monotonic()
        try:
            code = await running.run()
        except Superseded as error:
            if not await self._is_superseded(error):
                why = f"its status.saved.term is {error.term}, which no master has written"
                await self._begin_after_a_bug(key, running, why, began)
            return
        except ApiError as error:
            if running.is_left_alone:
                self._was_left_alone(key, running)
                return
            if running.is_deleted:
                self._forget(key, running)
                return
            log.warning("job %s could not be begun: %s; it is tried again in %g s", key, error, self._pause)
            await asyncio.sleep(self._pause)
            self._begin_again(key, running, running.attempt)
            return
        except Exception as error:  # a bug of ours, or a status that cannot be read: it is this job's alone
            log.exception("what carries job %s has failed", key)
            running.write_journal()
            await self._begin_after_a_bug(key, running, said(error), began)
            return
        if running.is_left_alone:
            self._was_left_alone(key, running)
        elif running.is_deleted:
            self._forget(key, running)
        elif code == CORE_FAILED:
            await self._begin_after_a_bug(key, running, running.failure, began)
        elif self.running.get(key) is running:
            del self.running[key]
            self._is_over(key, running.document)
            log.info("job %s is over", key)

    async def _is_superseded(self, error: Superseded) -> bool:
        """False where that job alone says so, in a status that somebody else has written."""
        with contextlib.suppress(ApiError):
            if not await self._lease.lift(error.term, error.made):
                log.error("%s: but this process holds the Lease, which is older than the job", error)
                return False
        log.error("%s: this process is no longer the master", error)
        self._end(1)
        return True

    async def _begin_after_a_bug(self, key: JobName, running: RunningJob, why: str, began: float) -> None:
        """The core of this job cannot be trusted any more; those of the others can. It begins again from what is saved
        and from its members' Hellos, ever more slowly and without end, and its ranks train on meanwhile."""
        if running.is_deleted:
            self._forget(key, running)
            return
        lasted = time.monotonic() - began
        failures = self._failures[key] = 1 if lasted > SLOWEST else self._failures.get(key, 0) + 1
        pause = min(self._pause * 2 ** min(failures, 10), SLOWEST)
        log.error("the core of job %s has failed (a bug of ours): %s; it begins again in %g s", key, why, pause)
        await self._leave_unserved(key, running, UNSERVED.format(why.rstrip("."), f"{pause:g}"))
        await asyncio.sleep(pause)
        self._begin_again(key, running, running.attempt + 1)

    async def _leave_unserved(self, key: JobName, running: RunningJob, text: str) -> None:
        assert self.sidecars is not None
        self._unserved[key] = text
        self.sidecars.turn_away(key, HandsOff(text))
        try:
            await running.tell_unsupervised(CORE_HAS_FAILED, text)
        except Exception as error:  # its status may be what cannot be read
            log.warning("that job %s is not supervised could not be written: %s", key, said(error))

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

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("what was done for a job has failed: %r", task.exception(), exc_info=task.exception())

    # -- who is supervised, and how -----------------------------------------------------------------------------------
    def _mode(self, key: JobName, job: Document) -> Mode:
        namespace = self._namespaces.get(key.partition("/")[0])
        return modes.mode_of(self._setting, job, self._pods.get(key, {}).values(), namespace)

    def _follow_mode(self, key: JobName, running: RunningJob, job: Document) -> None:
        """Another mode is another beginning, from the status and the members' Hellos, as a new master's is."""
        mode = self._mode(key, job)
        if mode.word == running.mode.word or running.is_left_alone or running.is_deleted:
            return
        assert self.sidecars is not None
        log.warning("job %s: its mode is %s now%s", key, mode.word, f": {mode.why}" if mode.why else "")
        if mode.word == OFF:
            self._off[key] = job, mode
        running.leave_alone()
        self.sidecars.turn_away(key, HandsOff(f"job {key!r} is {self._why_alone(key)}"))

    def _was_left_alone(self, key: JobName, running: RunningJob) -> None:
        if self.running.get(key) is not running:
            return
        self._orders[key] = running.next_order
        if running.is_deleted:
            self._forget(key, running)
            return
        del self.running[key]
        self._off.pop(key, None)  # so that it is told now, after the last status of what ran
        self._job_changed("MODIFIED", running.document)

    def _leave_off(self, key: JobName, job: Document, mode: Mode) -> None:
        before = self._off.get(key)
        self._off[key] = job, mode
        if before is None or before[1] != mode or before[0]["metadata"]["uid"] != job["metadata"]["uid"]:
            self._spawn(self._tell_off(JobRecord(self._api, job, self._term, list), mode))

    async def _tell_off(self, record: JobRecord, mode: Mode) -> None:
        text = (
            f"Outrider leaves this job alone: {mode.why}. What runs goes on, and nothing that happens to it is mended."
        )
        record.add(modes.SWITCHED_OFF, text, "warning", None, "", {})
        with contextlib.suppress(Superseded):
            await record.save_unsupervised(modes.SWITCHED_OFF, text)
        await record.post_last_events()

    def _look_at_mode(self, key: JobName) -> None:
        """A pod of another owner's, or the namespace, may say another."""
        if (found := self.running.get(key)) is not None:
            self._follow_mode(key, found, found.document)
        elif key in self._off:
            self._job_changed("MODIFIED", self._off[key][0])

    # -- pods -------------------------------------------------------------------------------------------------------
    def _list_pods(self, pods: list[Document]) -> None:
        self._pods = {}
        for pod in readable("Pod", pods, shapes.POD):
            key = disappeared.made_for(pod)
            if key is not None and not disappeared.is_taken_out(pod):
                self._pods.setdefault(key, {})[pod["metadata"]["name"]] = pod
        self._pods_listed = True
        for key, running in self.running.items():
            with fenced(f"the pods of ElasticJob {key}"):
                running.pods.listed(list(self._pods.get(key, {}).values()))
        self._begin_all()
        for key, of_job in self._pods.items():
            with fenced(f"the pods of ElasticJob {key}"):
                self._adopt_if_needed(key, next(iter(of_job.values())))
                self._look_for_another_beginning(key)

    def _pod_changed(self, kind: str, pod: Document) -> None:
        with fenced(name_of("Pod", pod)):
            shapes.check(pod, shapes.POD)
            self._take_pod(kind, pod)

    def _take_pod(self, kind: str, pod: Document) -> None:
        key, name = disappeared.made_for(pod), pod["metadata"]["name"]
        if key is None:
            return
        if disappeared.is_taken_out(pod):
            if name not in self._pods.get(key, ()):
                return
            kind = "DELETED"
        if kind == "DELETED":
            of_job = self._pods.get(key, {})
            of_job.pop(name, None)
            if not of_job:
                self._pods.pop(key, None)
        else:
            self._pods.setdefault(key, {})[name] = pod
        running = self.running.get(key)
        if modes.says_something(pod) or key in self._off or (running is not None and running.mode.why):
            self._look_at_mode(key)
        if running is not None and running.pods.has(pod):
            running.pod_changed(kind, pod)
        elif kind == "ADDED":
            self._adopt_if_needed(key, pod)
            self._look_for_another_beginning(key, pod)

    def _adopt_if_needed(self, key: JobName, pod: Document) -> None:
        """The pod of a job for which there is no ElasticJob, and which is no ElasticJob's own."""
        is_ours = MEMBER in mapping(pod["metadata"].get("labels"))
        if (
            self._setting == OFF
            or is_ours
            or key in self._jobs
            or pod["metadata"].get("deletionTimestamp")
            or observe.is_over(pod)
        ):
            return
        self._spawn(self._adopt(pod))

    async def _adopt(self, pod: Document) -> None:
        try:
            await adoption.adopt(self._api, pod, self._limits)
        except (ApiError, ValueError) as error:
            log.warning("%s is in no job: %s", name_of("Pod", pod), error)
        except Exception:  # its owner's document may be anything
            log.exception("%s is in no job: its owners could not be read (a bug of ours)", name_of("Pod", pod))


def _phase(job: Document) -> object:
    return mapping(job.get("status")).get("phase")


def _made_at(pod: Document) -> str:
    return str(pod["metadata"].get("creationTimestamp"))
