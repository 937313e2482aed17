"""Writes one ElasticJob's status by compare-and-set, and posts its Events.

The status is the job's memory. A master claims it, by writing its term, before it reads it. From then on a write of an
earlier master conflicts; that master then reads the status, finds the higher term, and ends. One write is in flight at
a time; of the statuses that wait meanwhile, only the newest is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from outrider.master.core.k8s.elasticjob import accepted_spec, deletion
from outrider.master.core.k8s.elasticjob import begin_anew as elasticjob_begin_anew
from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.elasticjob.event import event_of
from outrider.master.core.k8s.elasticjob.status import left_by, status_of, unsupervised
from outrider.master.core.k8s.owners import revisions
from outrider.master.core.k8s.pods import create_errors, unknown_fields
from outrider.master.core.k8s.pods.event_rate import Allowance
from outrider.master.core.k8s.values import paths, pytorch_fields, shapes
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import GROUP_VERSION, PLURAL, Document
from outrider.master.core.k8s.values.phases import is_over
from outrider.master.core.k8s.values.shapes import WrongDocument
from outrider.master.kubernetes.api.client import MERGE_PATCH, Api, ApiError
from outrider.master.kubernetes.job_history import JobHistory

CLAIMS = 8
"""Most tries of a write after conflicts."""
MOST_TERM = 2**31 - 1
"""Highest valid term, the limit of the Lease's counter; obeying a higher one would end every master."""
LAST_EVENTS = 5.0
"""Seconds for posting the remaining Events of a job that is over."""
EVENTS_WAITING = 500
"""Most Events in the queue; further ones are only in the log."""

log = logging.getLogger("record")


class Superseded(Exception):
    """A master with a higher term has claimed this job."""

    def __init__(self, path: str, term: int, ours: int, made: str) -> None:
        """`made`: creation time of the job, RFC 3339."""
        super().__init__(f"{path} was claimed by a master of term {term}, and this one has {ours}")
        self.term, self.made = term, made


def path_of(namespace: str, name: str = "") -> str:
    folder = paths.folder(GROUP_VERSION, PLURAL, namespace)
    return paths.named(folder, name) if name else folder


def now() -> str:
    """The current time in RFC 3339 and UTC, as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class JobRecord:
    """`newest` is the newest document, valid or not. `job` is that document with the newest valid spec, in our own
    field names; `accepted` is `job` with all defaults, from which pods are created. `pods` returns the watched pods."""

    def __init__(
        self, api: Api, job: Document, term: int, pods: Callable[[], list[Document]], accepted: Document | None = None
    ) -> None:
        """`accepted`: an earlier valid document, if `job` is invalid."""
        self.newest = job
        self.job = self.accepted = pytorch_fields.in_our_words(accepted or job)
        self._api, self._term, self._pods = api, term, pods
        metadata = job["metadata"]
        self.namespace, self.name, self.uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self.path = path_of(self.namespace, self.name)
        self._version = str(metadata.get("resourceVersion") or "")
        self._newest: Mapping[str, object] = {}
        self._saved: Mapping[str, object] | None = None
        self.problems: list[str] = []
        """Problems of the newest spec, which then has no effect."""
        self.unknown_fields = unknown_fields.left_by(accepted or job)
        """Paths of fields in the newest spec that pods are created without, as the API server does not know them."""
        self.owner: Callable[[], Document | None] = lambda: None
        """Returns the last read document of the controller whose pods the job has adopted."""
        self.is_gone = False
        """Whether the ElasticJob was deleted, so that nothing is written to it any more."""
        self._history = JobHistory(api, lambda: self.job)
        self._writing = asyncio.Lock()
        self._events: asyncio.Queue[Document] = asyncio.Queue(EVENTS_WAITING)
        self._takes_no_more = False
        """Whether the namespace is being deleted, so that no further Event will be accepted."""
        self._not_taken = ""
        """Logged reason why the last Event was refused; empty if it was accepted."""

    def update(self, job: Document) -> None:
        """Takes a new version of the document, whose spec has not been checked yet."""
        self.newest = job
        status = job.get("status")
        self.job = {**self.job, "metadata": shapes.metadata_of(job), **({} if status is None else {"status": status})}

    def accept(self, before: Document | None = None) -> None:
        """Makes the newest spec, which is valid, the one that is run. `before`: the document that was run until now."""
        self.problems = []
        self.unknown_fields = unknown_fields.still_there(self.newest, self.unknown_fields)
        self.job = {**self.job, "spec": pytorch_fields.in_our_words(self.newest)["spec"]}
        given = elasticjob_spec.with_defaults(self.newest, before)
        self.accepted = elasticjob_spec.with_defaults(pytorch_fields.in_our_words(given))

    # -- status -----------------------------------------------------------------------------------------------------
    async def claim(self) -> dict[str, object] | None:
        """Claims the status and returns what an earlier master saved in it; None if no master has run the job."""
        for _ in range(CLAIMS):
            job = await self._read()
            patch = {"metadata": {"resourceVersion": self._version}, "status": {"saved": {"term": self._term}}}
            try:
                job = await self._api.patch(f"{self.path}/status", patch, MERGE_PATCH)
            except ApiError as error:
                if not error.is_conflict:
                    raise
                continue
            self._version = job["metadata"]["resourceVersion"]
            return left_by(mapping(job.get("status")))
        raise ApiError(409, "Conflict", f"{self.path}: the status changes faster than it can be claimed")

    async def save_status(self, status: Mapping[str, object]) -> None:
        """Writes the status; returns when it, or a newer one, is written."""
        self._newest = status
        async with self._writing:
            newest = self._newest
            if newest is not self._saved:
                await self._write(newest)
                self._saved = newest

    async def save_again(self) -> None:
        """Writes the last status again, with the current pods and problems."""
        async with self._writing:
            await self._write(self._newest)

    async def save_history(self, part: Mapping[str, object]) -> None:
        """Writes this master's part of the history, unless the job is gone."""
        if not self.is_gone:
            await self._history.save(part)

    @property
    def has_saved(self) -> bool:
        return bool(self._newest)

    async def save_unsupervised(self, reason: str, message: str) -> None:
        """Sets the condition Supervised to False, and leaves the rest of the status unchanged."""
        for _ in range(CLAIMS):
            job = await self._read()
            status = unsupervised(mapping(job.get("status")), reason, message, now())
            if status == job.get("status"):
                return
            try:
                await self._api.replace(f"{self.path}/status", {**self.job, "status": status})
            except ApiError as error:
                if not error.is_conflict:
                    raise
                continue
            return

    async def begin_anew(self, meant: Document, since: str) -> Document | None:
        """Resets a job that is over to not started, with the spec and owner of `meant`; returns the new document.

        Returns None if the job is no longer over, or is being deleted. If this master ends between the two writes, the
        next one repeats both: until the second write, the status has the owner and revision of the ended job.
        """
        for _ in range(CLAIMS):
            job = await self._read()
            if not is_over(job) or deletion.is_deleted(job):
                return None
            identity = {"uid": self.uid, "resourceVersion": self._version}
            owners = {"ownerReferences": meant["metadata"]["ownerReferences"]}
            try:
                patch = {"metadata": {**identity, **owners}, "spec": meant["spec"]}
                job = await self._api.patch(self.path, patch, MERGE_PATCH)
                return await self._api.replace(
                    f"{self.path}/status", {**job, "status": elasticjob_begin_anew.begun(job, since)}
                )
            except ApiError as error:
                if not error.is_conflict:
                    raise
        raise ApiError(409, "Conflict", f"{self.path}: the status changes faster than it can be written")

    async def _write(self, status: Mapping[str, object]) -> None:
        try:
            await self._write_what_is_there(status)
        except ApiError as error:
            if not error.is_absent:
                raise
            self.is_gone = True  # the watch will report that too

    async def _write_what_is_there(self, status: Mapping[str, object]) -> None:
        for _ in range(CLAIMS):
            if self.is_gone:
                return
            document = status_of(self.job, status, self._pods(), now(), self.problems, self.unknown_fields)
            document = revisions.kept(document, self.job, self._pods(), self.owner())
            if self.problems:
                document = accepted_spec.kept(document, self.accepted)
            body = {**self.job, "metadata": {**self.job["metadata"], "resourceVersion": self._version}}
            try:
                written = await self._api.replace(f"{self.path}/status", {**body, "status": document})
            except ApiError as error:
                if not error.is_conflict:
                    raise
                await self._read()
                continue
            self._version = written["metadata"]["resourceVersion"]
            self.update(written)
            return
        raise ApiError(409, "Conflict", f"{self.path}: the status changes faster than it can be written")

    async def _read(self) -> Document:
        job = await self._api.get(self.path)
        if job["metadata"]["uid"] != self.uid:
            raise ApiError(404, "NotFound", f"{self.path} was deleted, and another one of the same name exists")
        self.update(job)
        self._version = job["metadata"]["resourceVersion"]
        term = mapping(mapping(job.get("status")).get("saved")).get("term") or 0
        if not isinstance(term, int) or term > MOST_TERM:
            raise WrongDocument("status.saved.term", term, f"a whole number up to {MOST_TERM}")
        if term > self._term:
            raise Superseded(self.path, term, self._term, str(job["metadata"].get("creationTimestamp") or ""))
        return job

    # -- events -----------------------------------------------------------------------------------------------------
    def add(
        self, kind: str, reason: str, severity: str, member: str | None, generation: str, detail: dict[str, Any]
    ) -> None:
        event = event_of(self.job, kind, reason, severity, member, now())
        if event is None or self._takes_no_more:
            return
        try:
            self._events.put_nowait(event)
        except asyncio.QueueFull:
            log.warning("the API server accepts Events too slowly: %s is only in the log", kind)

    async def leave_out(self, fields: Sequence[str]) -> None:
        """Reports fields that the API server does not know, each once for as long as the template has it."""
        new = [each for each in dict.fromkeys(fields) if each not in self.unknown_fields]
        new = new[: unknown_fields.MOST - len(self.unknown_fields)]
        self.unknown_fields += new
        for each in new:
            self.add(unknown_fields.REASON, unknown_fields.sentence(each), "warning", None, "", {})
        if new and self.has_saved:
            with contextlib.suppress(ApiError, Superseded, WrongDocument):  # the core's next status reports them too
                await self.save_again()

    async def post_events(self) -> None:
        """Posts Events at a limited rate until cancelled."""
        allowance, pause = Allowance(), 0.0
        while True:
            await asyncio.sleep(pause)
            event = await self._events.get()
            pause = allowance.take(asyncio.get_running_loop().time())
            await self._post(event)

    async def post_last_events(self) -> None:
        """Posts the remaining Events of a job that is over, in a bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_EVENTS):
                while not self._events.empty():
                    await self._post(self._events.get_nowait())

    async def _post(self, event: Document) -> None:
        """Posts one Event. A refusal is harmless, as Events are in the log too; its reason is logged once."""
        if self._takes_no_more:
            return
        try:
            await self._api.create(paths.folder("v1", "events", self.namespace), event)
            self._not_taken = ""
        except ApiError as error:
            if error.is_conflict:
                return
            self._takes_no_more = create_errors.is_final(error.status, error.message)
            why = f"{error.status} {error.reason}"  # each message names its own Event
            if why != self._not_taken:
                then = "no more are sent" if self._takes_no_more else "further such failures are not logged"
                log.warning("%s/%s: posting an Event failed (%s): %s", self.namespace, self.name, then, error)
            self._not_taken = why
