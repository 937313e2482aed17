"""A core on its stage whose Events go to the SDK's exporters in memory."""

from __future__ import annotations

from itertools import pairwise

import pytest
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from outrider.master.core.actions import Action, Announce, EndJob
from outrider.master.core.spec import JobSpec
from outrider.master.service.telemetry.export import Export
from outrider.report.words import STAGES
from outrider.wire.ids import JobName
from tests.unit.master.core.play import BEGAN_AT, Play, job
from tests.unit.master.core.ps_play import PsPlay, ps_job


class Exported:
    """Adds telemetry to a stage; `begin` comes before its core is made."""

    def begin(self) -> None:
        self.traces, self.records = InMemorySpanExporter(), InMemoryLogRecordExporter()
        self.export = Export(SimpleSpanProcessor(self.traces), SimpleLogRecordProcessor(self.records))
        self.telemetry = self.export.of_job(lambda: self.state, "gpt-{}".format)  # type: ignore[attr-defined]

    def follow(self, action: Action) -> None:
        if isinstance(action, Announce):
            self.telemetry.announced(action)
        elif isinstance(action, EndJob):
            self.telemetry.ended(action)

    def spans(self) -> tuple[list[ReadableSpan], list[ReadableSpan]]:
        """The recoveries, and their stages."""
        found = self.traces.get_finished_spans()
        return [each for each in found if each.parent is None], [each for each in found if each.parent is not None]

    def logs(self, kind: str) -> list[tuple[str, str, int]]:
        """Severity, body and trace of each log record of this kind."""
        found = [each.log_record for each in self.records.get_finished_logs()]
        return [(each.severity_text or "", str(each.body), each.trace_id or 0)
                for each in found if (each.attributes or {})["outrider.kind"] == kind]  # fmt: skip


class ExportedPlay(Exported, Play):
    def __init__(self, spec: JobSpec | None = None) -> None:
        self.begin()
        Play.__init__(self, spec)

    def _perform(self, action: Action) -> None:
        Play._perform(self, action)
        self.follow(action)


class ExportedPsPlay(Exported, PsPlay):
    def __init__(self, spec: JobSpec) -> None:
        self.begin()
        PsPlay.__init__(self, spec)

    def _perform(self, action: Action) -> None:
        PsPlay._perform(self, action)
        self.follow(action)


@pytest.fixture
def play() -> ExportedPlay:
    return training()


def training(members: int = 4, least: int | None = None, **policy: object) -> ExportedPlay:
    found = ExportedPlay(job(members, least, **policy))
    found.until_running(members)
    found.run(2.0)
    return found


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9 - BEGAN_AT, span.end_time / 1e9 - BEGAN_AT


def test_a_recovery_is_a_trace_whose_stages_follow_each_other_from_the_fault_to_the_first_new_step(
    play: ExportedPlay,
) -> None:
    before = play.now
    play.crash("worker-2")
    play.run(5.0)
    (root,), stages = play.spans()
    assert [stage.name for stage in stages] == [name for name in STAGES if name in {stage.name for stage in stages}]
    assert {"detect", "stop", "wait", "agree", "new_step"} <= {stage.name for stage in stages}
    assert stages[0].start_time == root.start_time
    assert stages[-1].end_time == root.end_time
    assert all(one.end_time == following.start_time for one, following in pairwise(stages))
    begin, end = seconds(root)
    assert begin <= before < end <= play.now
    fault = play.status()["faults"][-1]
    assert end - begin == pytest.approx(sum(fault["stages"].values()), abs=1e-6)
    assert root.status.status_code == StatusCode.OK
    assert dict(root.attributes or {}) | {
        "outrider.job": "digits", "outrider.kind": "WorkerExited", "outrider.member": "worker-2", "outrider.faults": 1,
        "outrider.cause": fault["reason"], "outrider.seconds_lost": pytest.approx(fault["seconds_lost"], abs=1e-3),
    } == dict(root.attributes or {})  # fmt: skip
    assert all(stage.context.trace_id == root.context.trace_id for stage in stages if stage.context and root.context)


def test_the_events_of_a_recovery_are_logs_of_its_trace_and_others_are_not(play: ExportedPlay) -> None:
    play.crash("worker-2")
    play.run(5.0)
    (root,), _ = play.spans()
    assert root.context is not None
    ((severity, body, trace),) = play.logs("WorkerExited")
    assert (severity, trace) == ("WARN", root.context.trace_id)
    assert "worker-2" in body
    assert [trace for _, _, trace in play.logs("Recovered")] == [root.context.trace_id]
    assert [(severity, trace) for severity, _, trace in play.logs("JobStarted")] == [("INFO", 0)]
    records = [each.log_record for each in play.records.get_finished_logs()]
    assert len(records) == sum(isinstance(action, Announce) for action in play.actions), "each Event is one log record"


def test_two_recoveries_are_two_traces(play: ExportedPlay) -> None:
    play.crash("worker-2")
    play.run(5.0)
    play.crash("worker-1")
    play.run(60.0)
    roots, _ = play.spans()
    assert [(root.attributes or {})["outrider.member"] for root in roots] == ["worker-2", "worker-1"]
    assert len({root.context.trace_id for root in roots if root.context}) == 2


def test_two_faults_of_one_recovery_are_one_trace_with_the_cost_of_both() -> None:
    play = training(4, least=2)
    play.crash("worker-1")
    play.lose("worker-3")
    play.run(60.0)
    (root,), stages = play.spans()
    assert [event.name for event in root.events] == ["WorkerExited", "MemberLost"]
    assert (stages[0].start_time, stages[-1].end_time) == (root.start_time, root.end_time)
    lost = sum(fault["seconds_lost"] for fault in play.status()["faults"])
    assert (root.attributes or {})["outrider.seconds_lost"] == pytest.approx(lost, abs=0.01)


def test_a_fault_without_a_recovery_ends_as_an_error() -> None:
    play = training(2, max_restarts=0)
    play.crash("worker-1")
    play.run(30.0)
    assert play.exit_code
    (root,), _ = play.spans()
    assert root.status.status_code == StatusCode.ERROR
    ((_, body, trace),) = play.logs("JobFailed")
    assert (root.status.description, root.context and root.context.trace_id) == (body, trace)
    assert (root.attributes or {})["outrider.outcome"] == "failed"


def test_a_job_of_a_namespace_and_its_pods_have_the_names_of_the_conventions() -> None:
    play = ExportedPlay(JobSpec(JobName("research/gpt"), 2, 2, 2))
    play.until_running(2)
    play.run(2.0)
    play.crash("worker-1")
    play.run(5.0)
    (root,), stages = play.spans()
    for span in (root, *stages):
        about = dict(span.attributes or {})
        assert (about["outrider.job"], about["k8s.namespace.name"]) == ("gpt", "research")
    assert (root.attributes or {})["k8s.pod.name"] == "gpt-worker-1"


def test_a_lost_parameter_server_is_a_recovery_of_its_task() -> None:
    play = ExportedPsPlay(ps_job())
    play.until(play.is_running)
    play.run(3.0)
    play.lose(play.holder("ps").id)
    play.run(120.0)
    roots, _ = play.spans()
    assert roots
    assert {str((root.attributes or {})["outrider.kind"]) for root in roots} >= {"MemberLost"}


def test_a_broken_exporter_ends_telemetry_and_not_the_master(caplog: pytest.LogCaptureFixture) -> None:
    export = Export(SimpleSpanProcessor(InMemorySpanExporter()), None)

    def gone() -> Play:
        raise RuntimeError("no such job")

    telemetry = export.of_job(gone)  # type: ignore[arg-type]
    play = training(2)
    (started,) = play.announced("JobStarted")
    telemetry.announced(started)
    telemetry.announced(started)
    assert [record.levelname for record in caplog.records if record.name == "telemetry"] == ["ERROR"]
