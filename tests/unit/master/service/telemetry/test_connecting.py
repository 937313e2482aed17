"""When a master exports, by the usual variables."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from outrider.master.service.telemetry.connecting import connect
from outrider.master.service.telemetry.export import resource
from outrider.master.service.telemetry.variables import requested

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("variables", "traces", "logs"),
    [
        ({}, False, False),
        ({"OTEL_SERVICE_NAME": "train"}, False, False),
        (ENDPOINT, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://collector:4318/v1/logs"}, False, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True, False),
        ({**ENDPOINT, "OTEL_LOGS_EXPORTER": "none"}, True, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}, False, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False, False),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True, True),
    ],
)
def test_the_variables_say_which_signals_are_exported(variables: dict[str, str], traces: bool, logs: bool) -> None:
    found = requested(variables)
    assert (found.traces, found.logs, found.problems) == (traces, logs, ())


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
    ],
)
def test_what_cannot_be_exported_is_named_with_what_can(variables: dict[str, str], named: str) -> None:
    found = requested({**ENDPOINT, **variables})
    assert not found.traces
    assert found.problems[0].startswith(f"{named}: Unsupported value: ")
    assert "supported values: " in found.problems[0]


def test_a_master_without_a_request_exports_nothing() -> None:
    assert connect({}) is None


def test_without_the_extra_one_line_names_it_and_the_master_works_on() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None; "  # as if it were not installed
        "from outrider.runtime import logs; logs.set_up('json', 'master'); "
        "from outrider.master.service.telemetry.connecting import connect; "
        f"assert connect({ENDPOINT!r}) is None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "pip install 'outrider[otel]'" in json.loads(line)["message"]


def test_the_service_is_outrider_unless_the_variables_name_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=lab,service.version=mine")
    found = resource().attributes
    assert (found["service.name"], found["service.version"], found["k8s.cluster.name"]) == ("outrider", "mine", "lab")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "train")
    assert resource().attributes["service.name"] == "train"
