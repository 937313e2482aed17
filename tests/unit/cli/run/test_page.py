"""The dashboard of `outrider run --dashboard` is a process beside the job, and never its trouble."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.run import page
from tests.waiting import DEADLINE


class Said:
    """What the user was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._new = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._new:
            self.lines.append(line)
            self._new.notify_all()

    def wait(self, word: str) -> str:
        with self._new:
            assert self._new.wait_for(lambda: any(word in line for line in self.lines), DEADLINE), self.lines
            return next(line for line in self.lines if word in line)


def children() -> set[int]:
    return {int(each) for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def test_its_address_is_said_and_that_it_has_ended_before_the_job(ended_job: Any) -> None:
    ended_job("digits")
    said, before = Said(), children()
    with page.shown("digits", said):
        said.wait("http://127.0.0.1:")
        (child,) = children() - before
        os.kill(child, signal.SIGKILL)
        assert "has ended with exit code -9. The job continues" in said.wait("has ended")
    assert len(said.lines) == 2


def test_its_end_with_the_job_is_not_said(ended_job: Any) -> None:
    ended_job("digits")
    said = Said()
    with page.shown("digits", said):
        said.wait("http://127.0.0.1:")
    assert len(said.lines) == 1


def test_why_it_does_not_start_is_said(ended_job: Any) -> None:
    ended_job("digits")
    said = Said()
    with page.shown("nothing", said):
        assert "job 'nothing' not found" in said.wait("has ended")


def test_files_of_the_users_folder_are_not_its_modules(
    ended_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_job("digits")
    (tmp_path / "aiohttp.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = Said()
    with page.shown("digits", said):
        said.wait("http://127.0.0.1:")
