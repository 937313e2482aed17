"""Checkpoints in memory on the cluster: a pod that is replaced is given what the others have."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import OF_A_POD, until
from tests.cluster.conftest import Make
from tests.local.scripts import in_shards, remembering


@pytest.mark.parametrize("sharded", [False, True], ids=["replicated", "sharded"])
def test_a_pod_that_is_replaced_loads_from_memory_what_the_others_gave_it(make: Make, sharded: bool) -> None:
    script = remembering(script=OF_A_POD)
    job = make(script=in_shards(script) if sharded else script, least=2, checkpointMemory="4Mi")
    restart, _ = job.training(4, more=30)
    trainer = job.pods()[job.pod("worker-1")]["spec"]["containers"][0]
    assert {"name": "OUTRIDER_CHECKPOINT_MEMORY", "value": str(4 << 20)} in trainer["env"], job.story()
    job.kubectl("delete", "pod", job.pod("worker-1"), "--grace-period=0", "--force")
    _, world = job.training(4, restart, more=15)
    first = {steps[0].loaded for steps in world.values()}
    assert len(first) == 1, job.story()
    assert first.pop() > 0, job.story()
    job.event("CheckpointReceived", "worker-2 has the checkpoint of step")


def test_an_unchanged_script_goes_on_from_the_memory_of_a_pod_that_is_gone(make: Make) -> None:
    job = make(least=2, checkpointMemory="4Mi", checkpointPath="/work/model.pt")
    restart, _ = job.training(4, more=30)
    until(lambda: job.steps() and len(job.saved) > 10, job.story)
    job.kubectl("delete", "pod", job.pod("worker-0"), "--grace-period=0", "--force")
    _, world = job.training(4, restart, more=15)
    (loaded,) = {steps[0].loaded for steps in world.values()}
    assert loaded > 0, job.story()
    job.event("CheckpointReceived", "worker-2 has save")
