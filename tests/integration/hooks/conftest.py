"""Fixtures of several tests of the hooks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hooks.agent import wait_until
from tests.unit.hooks.conftest import watched as watched


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup (v1) of 192 MiB without swap."""
    group = Path(f"/sys/fs/cgroup/memory/outrider-test-{os.getpid()}")
    if not group.parent.is_dir():
        pytest.skip("no memory cgroup of version 1 here")
    try:
        group.mkdir()
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if (group / name).exists():
                (group / name).write_text(str(192 << 20))
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "an empty cgroup")
    group.rmdir()


@pytest.fixture
def full_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 64 KiB."""
    place = tmp_path / "full"
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True)
    if mount.returncode:
        pytest.skip(f"no file system can be mounted here: {mount.stderr.decode()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)
