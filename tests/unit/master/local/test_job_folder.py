"""The folder of a local job in a /tmp that others share: theirs is never taken for ours."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.master.local.job_files import FolderError, JobFolder
from outrider.wire.ids import Role

SOMEBODY = 65534


def prepared(home: Path) -> JobFolder:
    folder = JobFolder(home / "jobs" / "train", Role("worker"))
    try:
        folder.prepare("token", "key", "{}")
    finally:
        folder.close()
    return folder


def made_by_somebody(shared: Path, *folders: str) -> None:
    """Another user comes first."""
    code = f"import os; os.setuid({SOMEBODY}); [(os.mkdir(f), os.chmod(f, 0o777)) for f in {list(folders)}]"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=shared)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A /tmp; of a short name, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="o") as name:
        found = Path(name)
        found.chmod(0o1777)
        yield found


def test_home_and_job_are_for_their_user_alone(shared: Path) -> None:
    home = shared / "a" / "home"
    prepared(home)
    for folder in (home, home / "jobs", home / "jobs" / "train"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
@pytest.mark.parametrize("inner", [(), ("h/jobs",), ("h/jobs", "h/jobs/train")])
def test_a_home_that_another_user_has_made_is_refused_and_nothing_is_written_there(
    shared: Path, inner: tuple[str, ...]
) -> None:
    made_by_somebody(shared, "h", *inner)
    with pytest.raises(FolderError, match=f"{shared}/h belongs to the user {SOMEBODY}, not to 0"):
        prepared(shared / "h")
    assert not list(shared.rglob("token"))


def test_a_link_and_a_folder_that_others_may_write_are_refused(shared: Path) -> None:
    (shared / "elsewhere").mkdir()
    (shared / "h").symlink_to(shared / "elsewhere")
    with pytest.raises(FolderError, match="/h is a symbolic link"):
        prepared(shared / "h")
    prepared(shared / "own")
    (shared / "own" / "jobs" / "train").chmod(0o770)
    with pytest.raises(FolderError, match=r"train is writable by other users \(mode 0770\)"):
        prepared(shared / "own")


def test_a_job_does_not_inherit_the_history_of_an_earlier_one_of_its_name(shared: Path) -> None:
    folder = prepared(shared / "own").path
    (folder / "history-1.json").write_text("{}")
    (folder / "history-12.json.new").write_text("{}")
    prepared(shared / "own")
    assert not list(folder.glob("history-*"))
