"""What the cluster suite counts as a restart of a master."""

from __future__ import annotations

from tests.cluster.masters import restarted


def test_a_container_that_was_started_again_is_told_with_how_it_ended_and_a_pod_that_was_replaced_is_not() -> None:
    before = {"a": ("uid-a", 0, ""), "b": ("uid-b", 1, "Error with 3"), "c": ("uid-c", 0, "")}
    after = {
        "a": ("uid-a", 2, "OOMKilled with 137"),
        "b": ("uid-b", 1, "Error with 3"),
        "c": ("uid-d", 4, "Error with 1"),
    }
    assert restarted(before, after) == {"a": "2 × OOMKilled with 137"}
