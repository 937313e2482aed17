"""The paths at which a container's cgroup is searched."""

from __future__ import annotations

import pytest

from training_hooks.chaos import kinds
from training_hooks.process import cgroup


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("9:cpu,cpuacct:/a\n8:memory:/kubepods/pod1/c1\n", "/sys/fs/cgroup/memory/kubepods/pod1/c1/memory.oom_control"),
        ("0::/kubepods.slice/c1\n", "/sys/fs/cgroup/kubepods.slice/c1/memory.events"),
        ("0::/\n", "/sys/fs/cgroup/memory.events"),
        ("3:memory:/\n0::/\n", "/sys/fs/cgroup/memory/memory.oom_control"),
        ("0::/a:b\n", "/sys/fs/cgroup/a:b/memory.events"),
    ],
)
def test_a_file_is_looked_for_in_the_own_group_first_and_at_the_top_last(text: str, first: str) -> None:
    paths = cgroup.candidates(text, "memory", "memory.oom_control", "memory.events")
    assert paths[0] == first
    assert paths[-2:] == ["/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"]


def test_a_controller_that_is_mounted_with_another_is_found() -> None:
    paths = cgroup.candidates("3:cpu,cpuacct:/a\n0::/b\n", "cpu", "cpu.stat", "cpu.stat")
    assert paths[:2] == ["/sys/fs/cgroup/cpu/a/cpu.stat", "/sys/fs/cgroup/b/cpu.stat"]


@pytest.mark.parametrize(
    ("text", "cores"), [("50000 100000\n", 0.5), ("max 100000\n", None), ("-1\n", None), ("", None)]
)
def test_a_limit_of_the_processor_is_read_in_cores(text: str, cores: float | None) -> None:
    assert kinds.quota_of("/nowhere/cpu.max", text) == cores
