"""What the metrics API of a cluster says of a pod, as the page shows it."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.cli.dashboard.elasticjobs import used
from outrider.master.core.k8s.values.names import SIDECAR_CONTAINER


def measured(*containers: Any) -> dict[str, Any]:
    """A PodMetrics of metrics.k8s.io/v1beta1."""
    return {"metadata": {"name": "train-worker-0"}, "containers": list(containers)}


def test_the_trainers_containers_are_added_up_without_ours() -> None:
    trainer = {"name": "trainer", "usage": {"cpu": "1250m", "memory": "2Gi"}}
    other = {"name": "loader", "usage": {"cpu": "250000000n", "memory": "1048576"}}
    ours = {"name": SIDECAR_CONTAINER, "usage": {"cpu": "9", "memory": "9Gi"}}
    assert used(measured(trainer, other, ours)) == ("train-worker-0", {"cpu": 1.5, "memory_mib": 2049.0})


@pytest.mark.parametrize("container", [{}, {"usage": 3}, {"usage": {"cpu": "x", "memory": None}}, 7])
def test_what_cannot_be_read_counts_nothing(container: Any) -> None:
    assert used(measured(container)) == ("train-worker-0", {"cpu": 0.0, "memory_mib": 0.0})
