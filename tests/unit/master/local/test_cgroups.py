"""Where the cgroups of isolated members are made, and what is written into them."""

from __future__ import annotations

from pathlib import Path

from outrider.master.local.sandbox.cgroups import Limits, hierarchies

V1 = """\
cgroup {0}/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup {0}/memory cgroup rw,relatime,memory 0 0
cgroup {0}/freezer cgroup rw,relatime,freezer 0 0
cgroup2 {0}/unified cgroup2 rw,relatime 0 0
"""


def test_controllers_of_version_1_are_used_where_they_are_below_the_own_group(tmp_path: Path) -> None:
    (tmp_path / "memory" / "system" / "us").mkdir(parents=True)
    own = "5:memory:/system/us\n4:cpu,cpuacct:/not/mounted/here\n3:freezer:/\n0::/\n"
    assert hierarchies(V1.format(tmp_path), own) == [tmp_path / "cpu,cpuacct", tmp_path / "memory/system/us"]


def test_version_2_is_used_at_its_top() -> None:
    mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
    assert hierarchies(mounts, "0::/user.slice/session-1.scope\n") == [Path("/sys/fs/cgroup")]


def test_a_limit_is_written_as_either_version_wants_it() -> None:
    assert Limits(cpus=0.5, memory=1 << 30).files() == {
        "cpu": {"cpu.cfs_quota_us": "50000", "cpu.max": "50000 100000"},
        "memory": {"memory.limit_in_bytes": "1073741824", "memory.max": "1073741824", "memory.swap.max": "0"},
    }
    assert Limits().files() == {}
