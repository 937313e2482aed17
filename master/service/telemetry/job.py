"""What the effects of a job pass on to telemetry.

It is free of the SDK: a master without the extra has no such object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from outrider.master.core.actions import Announce, EndJob
from outrider.master.core.job_kinds import Job


class JobTelemetry(Protocol):
    """Follows one job. Neither method waits or raises."""

    def announced(self, action: Announce) -> None: ...

    def ended(self, action: EndJob) -> None: ...


class Telemetry(Protocol):
    """The telemetry of one process."""

    def of_job(self, state: Callable[[], Job], pod_of: Callable[[str], str] | None = None) -> JobTelemetry:
        """`pod_of`: the name of a member's pod; None if members are no pods."""
        ...

    def close(self) -> None:
        """Exports what is left, for a bounded time."""
