"""One job's ElasticJob: its status, written by compare-and-set, and its Events.

The status is the job's memory. A master claims it before it reads it: the claim writes its term, and from then on every
write of an earlier master meets a version that it does not know, reads again, finds a higher term, and that one ends.
One write is on its way at a time; of those that wait meanwhile only the newest is written.
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

CLAIMS = 8
MOST_TERM = 2**31 - 1
"""As often as the Lease counts; nobody has written more, and following it would end every master."""
LAST_EVENTS = 5.0
EVENTS_WAITING = 500
"""Beyond so many that the API server has not taken yet, further Events are in the log alone."""

log = logging.getLogger("record")


class Superseded(Exception):
    """A master with a higher term has claimed this job."""

    def __init__(self, path: str, term: int, ours: int, made: str) -> None:
        """`made`: when the job was, RFC 3339."""
        super().__init__(f"{path} was claimed by a master of term {term}, and this one has {ours}")
        self.term, self.made = term, made


def path_of(namespace: str, name: str = "") -> str:
    folder = paths.folder(GROUP_VERSION, PLURAL, namespace)
    return paths.named(folder, name) if name else folder


def now() -> str:
    """RFC 3339 in UTC, as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class JobRecord:
    """`newest` is the document as it was shown last, whatever it says. `job` is that with the newest spec that could be
    run, in our own words, and `accepted` the same with all defaults, from which its pods are made; `pods` gives those
    that the watch shows."""

    def __init__(
        self, api: Api, job: Document, term: int, pods: Callable[[], list[Document]], accepted: Document | None = None
    ) -> None:
        """`accepted`: where `job` cannot be run, one that could be."""
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
        """What is wrong with the newest spec, which is then not followed."""
        self.unknown_fields = unknown_fields.left_by(accepted or job)
        """Paths in the newest spec of what pods are made without."""
        self.owner: Callable[[], Document | None] = lambda: None
        """The controller whose pods it has adopted, as it was read last."""
        self.is_gone = False
        """It was deleted: nothing is written to it any more."""
        self._writing = asyncio.Lock()
        self._events: asyncio.Queue[Document] = asyncio.Queue(EVENTS_WAITING)
        self._takes_no_more = False
        """The namespace is being deleted: no Event will be taken again."""
        self._not_taken = ""
        """Why the last one was not, which was said."""

    def update(self, job: Document) -> None:
        """It is shown in another version, whose spec nobody has looked at yet."""
        self.newest = job
        status = job.get("status")
        self.job = {**self.job, "metadata": shapes.metadata_of(job), **({} if status is None else {"status": status})}

    def accept(self, before: Document | None = None) -> None:
        """The newest can be run, and is followed from now on. `before`: the one that was."""
        self.problems = []
        self.unknown_fields = unknown_fields.still_there(self.newest, self.unknown_fields)
        self.job = {**self.job, "spec": pytorch_fields.in_our_words(self.newest)["spec"]}
        given = elasticjob_spec.with_defaults(self.newest, before)
        self.accepted = elasticjob_spec.with_defaults(pytorch_fields.in_our_words(given))

    # -- status -----------------------------------------------------------------------------------------------------
    async def claim(self) -> dict[str, object] | None:
        """Makes the status ours and returns what an earlier master left in it; None for a job that none has run."""
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
        """Returns when it, or a newer one, is written."""
        self._newest = status
        async with self._writing:
            newest = self._newest
            if newest is not self._saved:
                await self._write(newest)
                self._saved = newest

    async def save_again(self) -> None:
        """The same, with the pods as they are now, and what is wrong now."""
        async with self._writing:
            await self._write(self._newest)

    @property
    def has_saved(self) -> bool:
        return bool(self._newest)

    async def save_unsupervised(self, reason: str, message: str) -> None:
        """The condition Supervised is False; the rest of the status stays as it was left."""
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
        """Of a job that is over: its spec and owner become those of `meant`, and it has not begun. None where it is not
        over any more, or is being deleted. A master that ends between the two writes is followed by one that makes
        both: the owner and revision of the end are in the status until then."""
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
            self.is_gone = True  # the watch will say so too

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
            raise ApiError(404, "NotFound", f"{self.path} was deleted, and another one of that name is there")
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
            log.warning("the API server is slow to take Events: %s is in the log alone", kind)

    async def leave_out(self, fields: Sequence[str]) -> None:
        """The API server does not know them: each is told once, for as long as it stands in the template."""
        new = [each for each in dict.fromkeys(fields) if each not in self.unknown_fields]
        new = new[: unknown_fields.MOST - len(self.unknown_fields)]
        self.unknown_fields += new
        for each in new:
            self.add(unknown_fields.REASON, unknown_fields.sentence(each), "warning", None, "", {})
        if new and self.has_saved:
            with contextlib.suppress(ApiError, Superseded, WrongDocument):  # as the core's next status is met, and says
                await self.save_again()

    async def post_events(self) -> None:
        """Until it is cancelled."""
        allowance, pause = Allowance(), 0.0
        while True:
            await asyncio.sleep(pause)
            event = await self._events.get()
            pause = allowance.take(asyncio.get_running_loop().time())
            await self._post(event)

    async def post_last_events(self) -> None:
        """Of a job that is over: those that still wait, in a bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_EVENTS):
                while not self._events.empty():
                    await self._post(self._events.get_nowait())

    async def _post(self, event: Document) -> None:
        """One that is refused is in the log of what happened; nothing depends on it. Why is said once."""
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
                then = "none is tried any more" if self._takes_no_more else "the next are tried without a word"
                log.warning("%s/%s: an Event was not taken, and %s: %s", self.namespace, self.name, then, error)
            self._not_taken = why
