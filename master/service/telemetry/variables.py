"""Which signals the usual OTEL_* variables request, without an import of the SDK.

The endpoint itself, headers, certificates, queue sizes and the sampler are read by the SDK. A variable that asks for
what this build cannot do turns its signal off with a sentence for the log: telemetry never stops a master.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SIGNALS = ("TRACES", "LOGS")
PROTOCOL = "http/protobuf"


@dataclass(frozen=True, slots=True)
class Requested:
    """The signals to export, and a sentence for each one that is requested but not possible."""

    traces: bool
    logs: bool
    problems: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return self.traces or self.logs


def requested(variables: Mapping[str, str]) -> Requested:
    """The signals that these environment variables request; an empty value counts as unset."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Requested(False, False)
    problems: list[str] = []
    traces, logs = (_is_on(variables, signal, problems) for signal in SIGNALS)
    return Requested(traces, logs, tuple(problems))


def _is_on(variables: Mapping[str, str], signal: str, problems: list[str]) -> bool:
    name = f"OTEL_{signal}_EXPORTER"
    exporters = [each.strip() for each in variables.get(name, "").split(",") if each.strip()]
    if not exporters:
        if not any(variables.get(each) for each in _both(signal, "ENDPOINT")):
            return False
    elif "none" in exporters:
        return False
    elif "otlp" not in exporters:
        problems.append(f'{name}: Unsupported value: "{",".join(exporters)}": supported values: "otlp", "none". '
                        f"The master exports no {signal.lower()}.")  # fmt: skip
        return False
    for name in _both(signal, "PROTOCOL"):
        if protocol := variables.get(name):
            if protocol == PROTOCOL:
                return True
            problems.append(f'{name}: Unsupported value: "{protocol}": supported values: "{PROTOCOL}". '
                            f"The master exports no {signal.lower()}.")  # fmt: skip
            return False
    return True


def _both(signal: str, what: str) -> tuple[str, str]:
    """The variable of one signal, then the one of all signals."""
    return f"OTEL_EXPORTER_OTLP_{signal}_{what}", f"OTEL_EXPORTER_OTLP_{what}"
