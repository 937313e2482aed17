"""Each recovery of a job as a trace, with a span for each stage.

The root span goes from the fault to the first new step; each stage is a child.

The core stays as it is: an Announce says when to look, and the core's own faults say what happened, as they do for
metrics. A span opens with the first Event of a fault, so that the logs of a recovery have its context. It ends when
the core knows the seconds lost, and then gets the stages (`core.account.stages`), which follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer

from outrider.master.core.state.account import Outage
from outrider.master.core.state.generation import Fault
from outrider.master.core.state.job import State

NAME = "recovery"
MOST_FAULTS = 64
"""The most faults of one recovery that are followed; its span shows each as a span event."""
LAST_STAGE = "new_step"
NANOSECONDS = 1_000_000_000
Attributes = Mapping[str, str | int | float]


@dataclass(slots=True)
class Recovery:
    """A recovery under way."""

    span: Span
    faults: list[Fault]
    outage: Outage | None
    """The pause from which its stages count; None until the generation is stopped."""

    @property
    def is_over(self) -> bool:
        return self.faults[-1].seconds_lost is not None


class Recoveries:
    """Follows the faults of one state: that of a job, or of one task of a PS job."""

    def __init__(
        self, state: State, tracer: Tracer, about: Attributes, of_member: Callable[[str | None], Attributes]
    ) -> None:
        """`about`: attributes of every span. `of_member`: those of a member."""
        self.state = state
        self._tracer, self._about, self._of_member = tracer, about, of_member
        self._recovery: Recovery | None = None

    @property
    def context(self) -> Context | None:
        """The context of the recovery under way; None if there is none."""
        return None if self._recovery is None else trace.set_span_in_context(self._recovery.span, Context())

    def look(self) -> None:
        """Opens a recovery if a fault is open, and adds later faults to it."""
        if self._recovery is not None and self._recovery.is_over:
            return
        faults = [fault for fault in self.state.faults.noted if fault.seconds_lost is None]
        if not faults:
            return
        outage = self.state.account.outage
        if outage is not None and outage.stop_at < faults[0].at:
            outage = None  # that of an earlier recovery
        if self._recovery is None:
            began = faults[0].at if outage is None else min(faults[0].at, outage.began_at)
            span = self._tracer.start_span(NAME, Context(), start_time=_unix(self.state, began))
            self._recovery = Recovery(span, [], outage)
        self._recovery.outage = outage or self._recovery.outage
        self._add(faults)

    def close_finished(self, step: str) -> None:
        """Ends the recovery once the core knows what it cost; `step`: the first new step, if the Event has it."""
        recovery = self._recovery
        if recovery is None or not recovery.is_over:
            return
        ends_at = self._show_stages(recovery)
        if step:
            recovery.span.set_attribute("outrider.step", int(step))
        recovery.span.set_status(Status(StatusCode.OK))
        self._end(recovery, ends_at)

    def end(self, outcome: str, reason: str) -> None:
        """Ends a recovery with the job; it is an error if the job failed."""
        recovery = self._recovery
        if recovery is None:
            return
        if outcome == "failed":
            recovery.span.set_status(Status(StatusCode.ERROR, reason))
        recovery.span.set_attribute("outrider.outcome", outcome)
        self._end(recovery, _unix(self.state, self.state.now))

    def _add(self, faults: list[Fault]) -> None:
        assert self._recovery is not None
        known = {id(fault) for fault in self._recovery.faults}
        for fault in faults:
            if id(fault) not in known:
                self._recovery.faults.append(fault)
                self._recovery.span.add_event(fault.kind, self._of_fault(fault), _unix(self.state, fault.at))
        del self._recovery.faults[1:-MOST_FAULTS]

    def _show_stages(self, recovery: Recovery) -> int:
        """Adds a child for each stage; returns the end of the last one, as unix time in nanoseconds."""
        stages, outage = recovery.faults[-1].stages, recovery.outage
        if outage is None:
            return _unix(self.state, self.state.now)
        at = outage.began_at
        for stage, seconds in stages.items():
            child = self._tracer.start_span(
                stage,
                self.context,
                attributes={**self._about, "outrider.stage": stage},
                start_time=_unix(self.state, at),
            )
            at += seconds
            child.end(_unix(self.state, at))
        return _unix(self.state, at if LAST_STAGE in stages else self.state.now)

    def _end(self, recovery: Recovery, ends_at: int) -> None:
        """Ends the span with what is known at the end: the root cause may have changed since the first failure."""
        lost = [fault.seconds_lost for fault in recovery.faults if fault.seconds_lost is not None]
        recovery.span.set_attributes({**self._about, **self._of_fault(recovery.faults[0])})
        recovery.span.set_attribute("outrider.faults", len(recovery.faults))
        if lost:
            recovery.span.set_attribute("outrider.seconds_lost", round(sum(lost), 3))
        recovery.span.end(ends_at)
        self._recovery = None

    def _of_fault(self, fault: Fault) -> dict[str, str | int | float]:
        return {
            "outrider.kind": fault.kind,
            "outrider.cause": fault.reason,
            "outrider.generation": str(fault.generation),
            **self._of_member(fault.member),
            **({"k8s.node.name": fault.node} if fault.node else {}),
        }


def _unix(state: State, at: float) -> int:
    """A moment of the core's clock as unix time in nanoseconds."""
    return round((at + state.unix_offset) * NANOSECONDS)
