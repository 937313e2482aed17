"""What the cluster suite counts as a restart of a master."""

from __future__ import annotations

from tests.cluster.masters import restarted


def test_a_restarted_container_is_listed_with_its_exit_and_a_replaced_pod_is_not() -> None:
    before = {"a": ("uid-a", 0, ""), "b": ("uid-b", 1, "Error with 3"), "c": ("uid-c", 0, "")}
    after = {
        "a": ("uid-a", 2, "OOMKilled with 137"),
        "b": ("uid-b", 1, "Error with 3"),
        "c": ("uid-d", 4, "Error with 1"),
    }
    assert restarted(before, after) == {"a": "2 × OOMKilled with 137"}
