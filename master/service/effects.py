"""Performs the core's actions, each by one line or one call; the pump turns exceptions into events."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, assert_never

from outrider.master.core.actions import (
    Action,
    Announce,
    CloseSession,
    CreatePod,
    DeletePod,
    Deliver,
    EndJob,
    FollowOwner,
    HidePod,
    PlacePod,
    ProbeMember,
    ResizeOwner,
    SaveHistory,
    SaveStatus,
    Send,
    WriteReplicas,
)
from outrider.master.core.events import Event, MemberProbed, StatusSaved
from outrider.master.service import sidecar_probe
from outrider.master.service.platform import Keeper, Platform
from outrider.master.service.sidecars import Sidecars
from outrider.master.service.telemetry.job import JobTelemetry
from outrider.runtime.logs import announce
from outrider.runtime.rate_limit import RateLimit
from outrider.wire.ids import MemberId

log = logging.getLogger("master")

LINES, LINES_A_SECOND = 300, 5
"""Most log lines of a job, in a burst and per second; its Events, journal and status have the rest."""

Answers = dict[str, Any]


@dataclass(slots=True)
class MasterEffects:
    """Connects one job's core to its sidecars, platform and records."""

    put: Callable[[Event], None]
    stop: Callable[[int], None]
    sidecars: Sidecars
    platform: Platform
    records: Keeper
    job: str = ""
    """Name of the job in the log, if a process runs several; otherwise empty."""
    askers: dict[str, Callable[[Answers], None]] = field(default_factory=dict)
    """Callbacks that wait for a Deliver, by request."""
    lines: RateLimit = field(default_factory=lambda: RateLimit(LINES, LINES_A_SECOND, LINES, LINES_A_SECOND))
    """Rate limit of the job's log lines: all jobs share the log, which the kubelet truncates."""
    left_out: int = 0
    telemetry: JobTelemetry | None = None
    """Traces and logs of the job over OpenTelemetry; None if none are exported."""

    def perform(self, action: Action) -> Coroutine[object, object, None] | None:
        match action:
            case Send(session, _, message):
                self.sidecars.send(session, message)
            case CloseSession(session):
                self.sidecars.close_session(session)
            case CreatePod():
                return self.platform.create(action)
            case DeletePod():
                return self.platform.delete(action)
            case PlacePod():
                return self.platform.place(action)
            case HidePod():
                return self.platform.hide(action)
            case ResizeOwner():
                return self.platform.resize_owner(action)
            case FollowOwner():
                return self.platform.follow_owner(action)
            case WriteReplicas():
                return self.platform.write_replicas(action)
            case ProbeMember():
                return self._probe(action)
            case SaveStatus(version, status):
                saving = self.records.save_status(status)
                if saving is not None:
                    return self._saved(version, saving)
                self.put(StatusSaved(version))
            case SaveHistory(part):
                return self.records.save_history(part)
            case Announce():
                self._announce(action)
            case Deliver(request, bodies, missing):
                self._deliver(request, bodies, missing)
            case EndJob(exit_code, _, reason):
                self._log("EndJob", f"the job ends with exit code {exit_code}: {reason}", "normal")
                self.platform.ended(exit_code)
                if self.telemetry is not None:
                    self.telemetry.ended(action)
                self.stop(0)
            case _:
                assert_never(action)
        return None

    async def _saved(self, version: int, saving: Awaitable[None]) -> None:
        await saving
        self.put(StatusSaved(version))

    async def _probe(self, action: ProbeMember) -> None:
        self.put(MemberProbed(action.member, await sidecar_probe.reach(action.address, action.port)))

    def _announce(self, action: Announce) -> None:
        generation = str(action.generation) if action.generation.number else ""
        detail = dict(action.detail)
        self._log(
            action.kind, action.reason, action.severity, member=action.member or "", generation=generation, **detail
        )
        self.records.add(action.kind, action.reason, action.severity, action.member, generation, detail)
        if self.telemetry is not None:
            self.telemetry.announced(action)

    def _log(self, kind: str, reason: str, severity: str, **detail: str) -> None:
        shown = {"job": self.job, **detail}
        now = monotonic()
        if self.job and self.lines.is_spent(now):
            self.left_out += 1
            return
        self.lines.spend(1, now, lambda: False)
        if self.left_out:
            log.warning("%d log lines of job %s were dropped: it logged more than %g a second", self.left_out, self.job,
                        LINES_A_SECOND)  # fmt: skip
            self.left_out = 0
        announce(log, kind, reason, severity, {name: at for name, at in shown.items() if at})

    def _deliver(self, request: str, bodies: tuple[tuple[MemberId, str], ...], missing: tuple[MemberId, ...]) -> None:
        asker = self.askers.pop(request, None)
        if asker is not None:
            asker({"members": {member: _parsed(body) for member, body in bodies}, "missing": list(missing)})


def _parsed(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return {"error": "the member's answer is not valid JSON"}
