"""Tracks the mode of each job: supervised, only observed, or switched off."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator

from outrider.master.core.k8s.values import modes
from outrider.master.core.k8s.values.modes import OFF, Mode
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.background import Background
from outrider.master.kubernetes.namespaces import Namespaces
from outrider.master.kubernetes.pods_by_job import PodsByJob
from outrider.master.kubernetes.status_writer import JobRecord, Superseded
from outrider.wire.ids import JobName


class JobModes:
    """`setting`: the mode of all jobs, one of `modes.MODES`."""

    def __init__(
        self, api: Api, term: int, setting: str, pods: PodsByJob, namespaces: Namespaces, background: Background
    ) -> None:
        self._api, self._term, self.setting, self._background = api, term, setting, background
        self._pods, self._namespaces = pods, namespaces
        self._off: dict[JobName, tuple[Document, Mode]] = {}
        """Document and mode of each job that is switched off."""

    def of(self, key: JobName, job: Document) -> Mode:
        namespace = self._namespaces.annotations(key.partition("/")[0])
        return modes.mode_of(self.setting, job, self._pods.of(key), namespace)

    def __iter__(self) -> Iterator[JobName]:
        """Iterates over the jobs that are switched off."""
        return iter(self._off)

    def is_off(self, key: JobName) -> bool:
        return self.setting == OFF or key in self._off

    def switched_off(self, key: JobName) -> Document | None:
        """The job's document when it was switched off; None if it is not."""
        return self._off[key][0] if key in self._off else None

    def why_alone(self, key: JobName) -> str:
        mode = self._off[key][1] if key in self._off else Mode(OFF, f"the master's {modes.SETTING} is {OFF}")
        return f"switched off: {mode.why}" if self.is_off(key) else "about to be served again"

    def switch_off(self, key: JobName, job: Document, mode: Mode) -> None:
        self._off[key] = job, mode

    def leave_off(self, key: JobName, job: Document, mode: Mode) -> None:
        """Notes that the job is switched off, and reports that to its user once."""
        before = self._off.get(key)
        self._off[key] = job, mode
        if before is None or before[1] != mode or before[0]["metadata"]["uid"] != job["metadata"]["uid"]:
            self._background.start(self._report(JobRecord(self._api, job, self._term, list), mode))

    def forget(self, key: JobName) -> None:
        self._off.pop(key, None)

    def keep_only(self, there: Container[JobName]) -> None:
        for key in [key for key in self._off if key not in there]:
            self.forget(key)

    async def _report(self, record: JobRecord, mode: Mode) -> None:
        text = f"Outrider is switched off for this job: {mode.why}. Its ranks continue, but faults are not handled."
        record.add(modes.SWITCHED_OFF, text, "warning", None, "", {})
        with contextlib.suppress(Superseded):
            await record.save_unsupervised(modes.SWITCHED_OFF, text)
        await record.post_last_events()
