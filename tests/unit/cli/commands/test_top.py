"""`outrider top` without a terminal: which job it shows, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest


def test_the_only_running_job_is_shown(running_job: Any, ended_job: Any, outrider: Any) -> None:
    running_job("one")
    ended_job("another", phase="succeeded")
    assert "one is running" in outrider("top", "--once").stdout
    assert "another has succeeded" in outrider("top", "another", "--once").stdout


def test_several_jobs_are_listed(running_job: Any, outrider: Any) -> None:
    running_job("one")
    running_job("two")
    listed = outrider("top", "--once").stdout
    assert "one" in listed
    assert "two" in listed
    assert "1,240" in listed


def test_no_job_and_an_unknown_job(home: Any, outrider: Any) -> None:
    assert "no jobs" in outrider("top", "--once").stdout
    result = outrider("top", "other", "--once")
    assert (result.exit_code, "not found" in result.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [(), ("--cluster",)])
def test_without_a_terminal_the_error_names_once(home: Any, outrider: Any, arguments: tuple[str, ...]) -> None:
    result = outrider("top", *arguments)
    assert (result.exit_code, "outrider top --once" in result.stderr) == (2, True)
