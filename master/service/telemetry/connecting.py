"""Begins telemetry if the OTEL_* variables request it and the extra `otel` is installed; a master works without."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from outrider.master.service.telemetry.job import Telemetry
from outrider.master.service.telemetry.variables import requested

log = logging.getLogger("telemetry")


@contextmanager
def connected(variables: Mapping[str, str]) -> Iterator[Telemetry | None]:
    """The telemetry of a process until its end, which waits for a collector for a bounded time."""
    telemetry = connect(variables)
    try:
        yield telemetry
    finally:
        if telemetry is not None:
            telemetry.close()


def connect(variables: Mapping[str, str]) -> Telemetry | None:
    """The telemetry that the environment requests; None if it requests none, or none can be had (logged)."""
    wanted = requested(variables)
    for problem in wanted.problems:
        log.warning("%s", problem)
    if not wanted.any:
        return None
    try:
        from outrider.master.service.telemetry import export  # the extra; it takes 0.3 s, which only its users pay

        return export.over_http(wanted)
    except ModuleNotFoundError as error:
        log.warning(
            "The OTEL_* variables request an export, but the module %s is missing: install the extra `otel` "
            "(pip install 'outrider[otel]'). The master runs without traces and logs.",
            error.name,
        )
    except Exception as error:  # whatever the SDK raises on a wrong value: no reason to end a master
        text = "OpenTelemetry cannot be set up from the OTEL_* variables: %s. The master runs without traces and logs."
        log.warning(text, error)
    return None
