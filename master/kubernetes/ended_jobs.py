"""Handles jobs that are over: pods that arrive later, restarts with such pods, and deletion after the TTL.

A job that ends stays known by its uid, so that it is not started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from outrider.master.core.k8s.elasticjob import begin_anew, deletion, run_policy
from outrider.master.core.k8s.owners import revisions
from outrider.master.core.k8s.values.limits import Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes import adoption
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.fence import fenced, name_of
from outrider.master.kubernetes.background import Background
from outrider.master.kubernetes.leadership import Leadership
from outrider.master.kubernetes.pods_by_job import PodsByJob
from outrider.master.kubernetes.status_writer import JobRecord, Superseded
from outrider.master.service.sidecars import Denied, ForGood
from outrider.wire.ids import JobName
from outrider.wire.messages.membership import Hello

log = logging.getLogger("fleet")


class EndedJobs:
    def __init__(
        self,
        api: Api,
        term: int,
        limits: Limits,
        leadership: Leadership,
        pods: PodsByJob,
        background: Background,
        pause: float,
        may_begin: Callable[[JobName, Document], bool],
        begun: Callable[[Document], None],
    ) -> None:
        """`pause`: seconds before a pod's owners are read again after a failure. `may_begin`: whether no job of that
        name runs and it is not switched off. `begun` is called with each restarted job."""
        self._api, self._term, self._limits, self._leadership = api, term, limits, leadership
        self._pods, self._background, self._pause = pods, background, pause
        self._may_begin, self._begun = may_begin, begun
        self._over: dict[JobName, begin_anew.Ended] = {}
        self._reported_waiting: dict[JobName, str] = {}
        """Uid of each ended job for which the Event that pods wait has been emitted."""
        self._made: dict[JobName, dict[str, revisions.Made]] = {}
        """Owner and revision of each job's pods by the pods' uids, as far as they have been read."""
        self._looking: set[JobName] = set()
        """Ended jobs for which a pod's owners are being read."""
        self._kept: dict[JobName, Document] = {}
        """Ended jobs that are deleted some time after their end (`ttlSecondsAfterFinished`)."""

    def __contains__(self, key: JobName) -> bool:
        return key in self._over

    def __iter__(self) -> Iterator[JobName]:
        return iter(self._over)

    def has_ended(self, key: JobName, job: Document) -> bool:
        """Whether exactly this job (same uid) is over and has not been restarted since."""
        over = self._over.get(key)
        return over is not None and over.uid == job["metadata"]["uid"] and not begin_anew.is_begun(job, over)

    def add(self, key: JobName, job: Document) -> None:
        self._over[key] = begin_anew.ended(job)
        self._kept.pop(key, None)
        if run_policy.expires_at(job) is not None and not deletion.is_deleted(job):
            self._kept[key] = job
        self.look_for_another_beginning(key)

    def forget(self, key: JobName) -> None:
        for known in (self._over, self._kept, self._reported_waiting, self._made):
            known.pop(key, None)

    # -- pods that arrive after the end -----------------------------------------------------------------------------
    def answer(self, hello: Hello) -> ForGood | Denied:
        key, over = hello.job, self._over[hello.job]
        pod = next((pod for pod in self._pods.of(key) if pod["metadata"].get("uid") == hello.uid), None)
        found = begin_anew.judged(key, over, hello.uid, pod, self._made.get(key, {}).get(hello.uid))
        if pod is not None:
            self.look_for_another_beginning(key, pod)
        if not isinstance(found, begin_anew.Retry):
            return ForGood(found.reason)
        if found.seconds == begin_anew.LOOK_AGAIN and self._reported_waiting.get(key) != over.uid:
            self._reported_waiting[key] = over.uid
            record = JobRecord(self._api, over.job, self._term, list)
            record.add("PodsWaitForRestart", found.reason, "warning", None, "", {})
            self._background.start(record.post_last_events())
        return Denied(found.reason, "job", retry_after=found.seconds)

    def look_for_another_beginning(self, key: JobName, pod: Document | None = None) -> None:
        """Restarts a job that is over if this pod, or else its newest pod, calls for that."""
        over = self._over.get(key)
        if over is None or key in self._looking:
            return
        pods = [pod] if pod is not None else self._pods.of(key)
        pods = [each for each in pods if begin_anew.may_begin(over, each)]
        if pods and self._may_begin(key, over.job):
            self._looking.add(key)
            self._background.start(self._begin_if_anew(key, over, max(pods, key=_made_at)))

    async def _begin_if_anew(self, key: JobName, over: begin_anew.Ended, pod: Document) -> None:
        try:
            owner = await adoption.top_owner(self._api, pod)
            made = self._note_made(key, pod, revisions.made(pod, owner))
            if why := begin_anew.why_anew(over, pod, made):
                await self._begin_anew(key, over, pod, owner, why)
        except Superseded as error:
            if not await self._leadership.is_superseded(error):
                self._note_made(key, pod, revisions.UNREADABLE)
        except Exception as error:  # the owner's document may have any content
            self._note_made(key, pod, revisions.UNREADABLE)
            is_ours = not isinstance(error, ApiError | ValueError)
            log.warning("job %s is not restarted with %s: %s", key, name_of("Pod", pod), error, exc_info=is_ours)
            await asyncio.sleep(self._pause)
        finally:
            self._looking.discard(key)

    def _note_made(self, key: JobName, pod: Document, made: revisions.Made) -> revisions.Made:
        there = {each["metadata"].get("uid") for each in self._pods.of(key)}
        known = {uid: each for uid, each in self._made.get(key, {}).items() if uid in there}
        self._made[key] = {**known, pod["metadata"]["uid"]: made}
        return made

    async def _begin_anew(self, key: JobName, over: begin_anew.Ended, pod: Document, owner: Document, why: str) -> None:
        record = JobRecord(self._api, over.job, self._term, list)
        since = begin_anew.since(over, pod, self._pods.of(key))
        begun = await record.begin_anew(adoption.job_for(owner, pod, self._limits), since)
        if begun is None:
            return
        log.info("job %s restarts: %s", key, why)
        record.add("JobRestarted", f"The job restarts: {why}.", "normal", None, "", {})
        self.forget(key)
        self._begun(begun)
        await record.post_last_events()

    # -- ttlSecondsAfterFinished ------------------------------------------------------------------------------------
    async def delete_expired(self, unix_time: float) -> None:
        for key, job in list(self._kept.items()):
            with fenced(f"ElasticJob {key}"):
                expires_at = run_policy.expires_at(job)
                if expires_at is not None and expires_at <= unix_time and self._leadership.is_held():
                    del self._kept[key]
                    await self._delete(key, job)

    async def _delete(self, key: JobName, job: Document) -> None:
        record = JobRecord(self._api, job, self._term, list)
        record.add("JobExpired", run_policy.why_it_goes(job), "normal", None, "", {})
        await record.post_last_events()
        preconditions = {"preconditions": {"uid": record.uid}, "propagationPolicy": "Background"}
        try:
            await self._api.delete(record.path, {"apiVersion": "v1", "kind": "DeleteOptions", **preconditions})
        except ApiError as error:
            if not (error.is_absent or error.is_conflict):
                log.warning("deleting the expired job %s failed: %s; retrying", key, error)
                self._kept[key] = job


def _made_at(pod: Document) -> str:
    return str(pod["metadata"].get("creationTimestamp"))
