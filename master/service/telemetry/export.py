"""Exports over OTLP/HTTP with the SDK: this module alone builds its providers, and needs the extra `otel`.

The batch processors export in threads of their own, from queues with a bound (OTEL_BSP_*, OTEL_BLRP_*): a decision of
the core never waits for a collector, and what does not fit is dropped. `close` gives up after CLOSING seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import time_ns

from opentelemetry._logs import Logger, LogRecord, NoOpLogger, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracer, Tracer

import outrider
from outrider.master.core import job_kinds
from outrider.master.core.actions import Announce, EndJob
from outrider.master.core.job_kinds import Job
from outrider.master.service.telemetry.recoveries import Attributes, Recoveries
from outrider.master.service.telemetry.variables import Requested

CLOSING = 1.5
"""Seconds that the end of a process waits for a collector."""
SCOPE = "outrider.master"
OUTCOMES = {"JobFailed": "failed", "JobSucceeded": "succeeded", "JobStopped": "stopped"}

log = logging.getLogger("telemetry")


def resource() -> Resource:
    """The resource of this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come before the defaults."""
    ours = Resource({"service.name": "outrider", "service.version": outrider.__version__})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def over_http(requested: Requested) -> Export:
    """Exports the requested signals to the endpoints that the OTEL_* variables name."""
    return Export(
        BatchSpanProcessor(OTLPSpanExporter()) if requested.traces else None,
        BatchLogRecordProcessor(OTLPLogExporter()) if requested.logs else None,
    )


class Export:
    """The providers of one process, which all its jobs share."""

    def __init__(self, spans: SpanProcessor | None, records: LogRecordProcessor | None) -> None:
        about = resource()
        self._shut_down: list[Callable[[], None]] = []
        self._tracer: Tracer = NoOpTracer()
        self._logger: Logger = NoOpLogger(SCOPE)
        if spans is not None:
            tracers = TracerProvider(resource=about, shutdown_on_exit=False)
            tracers.add_span_processor(spans)
            self._tracer = tracers.get_tracer(SCOPE, outrider.__version__)
            self._shut_down.append(tracers.shutdown)
        if records is not None:
            loggers = LoggerProvider(resource=about, shutdown_on_exit=False)
            loggers.add_log_record_processor(records)
            self._logger = loggers.get_logger(SCOPE, outrider.__version__)
            self._shut_down.append(loggers.shutdown)

    def of_job(self, state: Callable[[], Job], pod_of: Callable[[str], str] | None = None) -> ExportedJob:
        return ExportedJob(self._tracer, self._logger, state, pod_of)

    def close(self) -> None:
        """Exports what is left, for CLOSING seconds at most."""
        closing = [threading.Thread(target=each, daemon=True) for each in self._shut_down]
        for each in closing:
            each.start()
        deadline = time_ns() + round(CLOSING * 1e9)
        for each in closing:
            each.join(max(0.0, (deadline - time_ns()) / 1e9))
        if any(each.is_alive() for each in closing):
            log.warning("The collector took not all traces and logs within %g s; the rest is lost.", CLOSING)


class ExportedJob:
    """Turns the announcements of one job into log records and traces; an error of telemetry ends only telemetry."""

    def __init__(
        self, tracer: Tracer, logger: Logger, state: Callable[[], Job], pod_of: Callable[[str], str] | None
    ) -> None:
        self._tracer, self._logger, self._state, self._pod_of = tracer, logger, state, pod_of
        self._recoveries: list[Recoveries] = []
        self._is_over: bool | None = None
        self._is_broken = False

    def announced(self, action: Announce) -> None:
        self._guarded(lambda: self._announced(action))

    def ended(self, action: EndJob) -> None:
        outcome = "succeeded" if action.exit_code == 0 else "failed"
        self._guarded(lambda: self._end(outcome, action.reason))

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._is_broken:
            return
        try:
            work()
        except Exception:  # whatever the SDK raises: as an exception of an action it would become a decision
            self._is_broken = True
            log.exception("exporting the traces and logs of a job failed (a bug in Outrider); it gets no more of them")

    def _announced(self, action: Announce) -> None:
        followed = self._follow()
        if self._is_over is None:
            self._is_over = bool(followed) and all(each.state.is_over for each in followed)  # under an earlier master
        if not self._is_over:
            for each in followed:
                each.look()
        self._emit(action, followed)
        for each in followed:
            each.close_finished(dict(action.detail).get("step", ""))
        if action.kind in OUTCOMES:
            self._end(OUTCOMES[action.kind], action.reason)

    def _end(self, outcome: str, reason: str) -> None:
        self._is_over = True
        for each in self._follow():
            each.end(outcome, reason)

    def _follow(self) -> list[Recoveries]:
        """The recoveries of each present part of the job; a part is a job of its own, or a task of a PS job."""
        known = {id(each.state): each for each in self._recoveries}
        parts = job_kinds.parts(self._state())
        self._recoveries = [
            known.pop(id(part)) if id(part) in known else Recoveries(part, self._tracer, self._about(), self._of_member)
            for part in parts
        ]
        for gone in known.values():
            gone.end("removed", "The task was removed.")
        return self._recoveries

    def _emit(self, action: Announce, followed: list[Recoveries]) -> None:
        is_warning = action.severity == "warning"
        generation = {"outrider.generation": str(action.generation)} if action.generation.number else {}
        of_member = [each for each in followed if action.member is not None and action.member in each.state.members]
        contexts = [each.context for each in of_member or followed if each.context is not None]
        self._logger.emit(
            LogRecord(
                timestamp=time_ns(),
                context=contexts[0] if contexts else None,
                severity_number=SeverityNumber.WARN if is_warning else SeverityNumber.INFO,
                severity_text="WARN" if is_warning else "INFO",
                body=action.reason,
                event_name=f"outrider.{action.kind}",
                attributes={
                    "outrider.kind": action.kind,
                    **self._about(),
                    **generation,
                    **self._of_member(action.member),
                    **{f"outrider.detail.{name}": value for name, value in action.detail},
                },
            )
        )

    def _about(self) -> Attributes:
        namespace, _, name = self._state_name().rpartition("/")
        return {"outrider.job": name, **({"k8s.namespace.name": namespace} if namespace else {})}

    def _state_name(self) -> str:
        return self._state().spec.name

    def _of_member(self, member: str | None) -> Attributes:
        if not member:
            return {}
        pod = {"k8s.pod.name": self._pod_of(member)} if self._pod_of is not None else {}
        return {"outrider.member": member, **pod}
