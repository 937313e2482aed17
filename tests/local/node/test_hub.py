"""Hub and sandboxes of isolated members by themselves: jobs beside each other, and what a killed keeper leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.master.local.sandbox.cgroups import JobGroups, Limits, hierarchies
from outrider.master.local.sandbox.isolation import Hub
from outrider.master.local.sandbox.namespaces import IsolationError
from outrider.runtime.processes import is_alive
from tests.waiting import DEADLINE

pytestmark = [
    pytest.mark.xdist_group("netns"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may give members networks of their own"),
]

HUB_ALONE = """
import asyncio, sys
from pathlib import Path
from outrider.master.local.sandbox.cgroups import Limits
from outrider.master.local.sandbox.isolation import Hub

async def main():
    hub = Hub("alone", sys.argv[1], Limits(), Path(sys.argv[2]))
    hub.sandbox("worker-0")
    print(hub.pid, hub.link, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.fixture
def uid() -> Iterator[str]:
    uid = f"test-{uuid.uuid4().hex[:8]}"
    yield uid
    for group in groups_of(f"{uid}-last"):
        (group / "keeper").rmdir()
        group.rmdir()


def groups_of(uid: str) -> list[Path]:
    bases = hierarchies(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    return [group for base in bases for group in base.glob(f"outrider-job-{uid}")]


def test_jobs_beside_each_other_have_networks_that_do_not_meet(tmp_path: Path, uid: str) -> None:
    async def both() -> None:
        hubs = [Hub(name, f"{uid}-{name}", Limits(), tmp_path / name) for name in ("a", "b")]
        boxes = [hub.sandbox("worker-0") for hub in hubs]
        try:
            assert hubs[0].link != hubs[1].link
            assert not hubs[0].subnet.overlaps(hubs[1].subnet)
            ways = [subprocess.run(("nsenter", f"--net=/proc/{box.pid}/ns/net", "ip", "route"), capture_output=True)
                    for box in boxes]  # fmt: skip
            assert [str(hub.subnet) in way.stdout.decode() for hub in hubs for way in ways] == [
                True,
                False,
                False,
                True,
            ]
        finally:
            for box in boxes:
                await box.close()
            for hub in hubs:
                await hub.close()
        assert not [hub for hub in hubs if Path("/sys/class/net", hub.link).exists()]

    asyncio.run(both())
    assert groups_of(f"{uid}-a") + groups_of(f"{uid}-b") == []


def test_what_a_killed_keeper_left_is_removed_by_the_next_job(tmp_path: Path, uid: str) -> None:
    command = (sys.executable, "-c", HUB_ALONE, uid, str(tmp_path / "hosts"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        keeper, link = owner.stdout.readline().split()
        for pid in (int(keeper), owner.pid):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE
    while is_alive(int(keeper)) or Path("/sys/class/net", link).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert groups_of(uid)
    JobGroups(f"{uid}-next", Limits())
    while groups_of(uid):  # the kernel may still be ending what was in them
        JobGroups(f"{uid}-next", Limits())
        assert time.monotonic() < deadline
    JobGroups(f"{uid}-last", Limits())  # nobody keeps the one before
    assert groups_of(f"{uid}-next") == []


def test_a_member_that_cannot_be_furnished_is_an_error_with_the_tools_own_words(tmp_path: Path, uid: str) -> None:
    async def one() -> None:
        hub = Hub("a", uid, Limits(), tmp_path / "hosts")
        try:
            hub.namespace = "/proc/nobody/ns/net"
            with pytest.raises(IsolationError, match="/proc/nobody/ns/net"):
                hub.sandbox("worker-0")
        finally:
            await hub.close()

    asyncio.run(one())
