"""The commands of the documents that one machine can execute, as they are written there (`tests.documented`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documented import ROOT, blocks, pages_that_run
from tests.unit.cli.conftest import home as home
from tests.waiting import DEADLINE

pytestmark = pytest.mark.slow


@pytest.fixture
def commands_of_ours(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The commands of this environment are found first, and no job is left running."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield
    subprocess.run(["outrider", "stop", "--now"], capture_output=True, timeout=DEADLINE)


EXHAUSTIVE = {
    "docs/get-started/laptop.md": "a quarter of a minute of computation, mostly of its training",
    "docs/how-to/doctor.md": "tests/local/test_doctor.py has its findings",
}
PAGES = [
    pytest.param(page, id=name, marks=pytest.mark.exhaustive if name in EXHAUSTIVE else ())
    for page in pages_that_run("local")
    for name in [str(page.relative_to(ROOT))]
]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: Path, commands_of_ours: None, tmp_path: Path) -> None:
    """In order, in one shell, whose folder has the files that the page shows and the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    found = blocks(page)
    for block in found:
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    script = "".join(f"# {block.where}\n{block.text}" for block in found if block.tag == "run: local")
    done = subprocess.run(
        ["bash", "-euxc", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
