"""`outrider clean` removes the files of ended jobs, and none of running ones."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outrider.cli.main import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path))
    return tmp_path


def ended(home: Path, job: str, *kept: Path) -> Path:
    folder = home / "jobs" / job
    (folder / "members" / "worker-0").mkdir(parents=True)
    (folder / "lock").write_text("")
    sentence = "last.pt of step 3 is kept as {}, because a state of step 1 takes its place"
    notes = [{"kind": "NewerCheckpointPreserved", "sentence": sentence.format(path)} for path in kept]
    (folder / "status.json").write_text(json.dumps({"data": {"notes": notes}}))
    return folder


def outrider(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["clean", *arguments], catch_exceptions=False)


def refused(*arguments: str) -> str:
    done = outrider(*arguments)
    assert done.exit_code != 0
    return done.output


def test_the_files_of_an_ended_job_are_removed_with_the_checkpoint_that_was_preserved(home: Path) -> None:
    path = home / "run, 1" / ".outrider-kept" / "a.step-3.last.pt"
    path.parent.mkdir(parents=True)
    path.touch()
    (path.parent.parent / "last.pt").touch()
    folder, other = ended(home, "a", path, home / "run, 1" / "last.pt"), ended(home, "b")
    done = outrider("a")
    assert done.output.splitlines() == [f"a: removed {path}", f"a: removed {folder}"]
    assert not folder.exists()
    assert other.exists()
    assert [each.name for each in path.parent.parent.iterdir()] == ["last.pt"]


def test_all_does_not_touch_running_jobs(home: Path) -> None:
    running = ended(home, "running")
    for job in ("a", "b"):
        ended(home, job)
    with (running / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert outrider("--all").output.splitlines()[-1] == f"removed 2 jobs from {home}"
        assert [each.name for each in (home / "jobs").iterdir()] == ["running"]
        assert "running is running; stop it first: outrider stop running" in refused("running")
    assert running.exists()


def test_the_jobs_must_be_given(home: Path) -> None:
    assert "job 'x' not found" in refused("x")
    assert "or --all for all jobs that have ended" in refused()
    assert "--all and JOBS: must not be used together" in refused("a", "--all")


def test_a_status_that_cannot_be_read_names_no_file(home: Path) -> None:
    folder = ended(home, "a")
    (folder / "status.json").write_text("{")
    outrider("a")
    assert not folder.exists()
