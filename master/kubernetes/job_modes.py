"""In which mode each job is: supervised, only observed, or switched off and left alone."""

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
    """`setting`: one of `modes.MODES`, for all jobs."""

    def __init__(
        self, api: Api, term: int, setting: str, pods: PodsByJob, namespaces: Namespaces, background: Background
    ) -> None:
        self._api, self._term, self.setting, self._background = api, term, setting, background
        self._pods, self._namespaces = pods, namespaces
        self._off: dict[JobName, tuple[Document, Mode]] = {}
        """Those that are switched off, and by whom."""

    def of(self, key: JobName, job: Document) -> Mode:
        namespace = self._namespaces.annotations(key.partition("/")[0])
        return modes.mode_of(self.setting, job, self._pods.of(key), namespace)

    def __iter__(self) -> Iterator[JobName]:
        """Jobs that are switched off."""
        return iter(self._off)

    def is_off(self, key: JobName) -> bool:
        return self.setting == OFF or key in self._off

    def switched_off(self, key: JobName) -> Document | None:
        """The job as it was then."""
        return self._off[key][0] if key in self._off else None

    def why_alone(self, key: JobName) -> str:
        mode = self._off[key][1] if key in self._off else Mode(OFF, f"the master's {modes.SETTING} is {OFF}")
        return f"switched off: {mode.why}" if self.is_off(key) else "about to be served anew"

    def switch_off(self, key: JobName, job: Document, mode: Mode) -> None:
        self._off[key] = job, mode

    def leave_off(self, key: JobName, job: Document, mode: Mode) -> None:
        """And its user is told."""
        before = self._off.get(key)
        self._off[key] = job, mode
        if before is None or before[1] != mode or before[0]["metadata"]["uid"] != job["metadata"]["uid"]:
            self._background.start(self._tell(JobRecord(self._api, job, self._term, list), mode))

    def forget(self, key: JobName) -> None:
        self._off.pop(key, None)

    def keep_only(self, there: Container[JobName]) -> None:
        for key in [key for key in self._off if key not in there]:
            self.forget(key)

    async def _tell(self, record: JobRecord, mode: Mode) -> None:
        text = (
            f"Outrider leaves this job alone: {mode.why}. What runs goes on, and nothing that happens to it is mended."
        )
        record.add(modes.SWITCHED_OFF, text, "warning", None, "", {})
        with contextlib.suppress(Superseded):
            await record.save_unsupervised(modes.SWITCHED_OFF, text)
        await record.post_last_events()
