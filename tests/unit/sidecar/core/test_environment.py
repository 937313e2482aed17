"""The environment of a PS job's worker processes, which have no rank and no world size."""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core.environment import common, defaults, of_rank
from outrider.wire.messages.generation import Start
from tests.unit.sidecar.core.play import FIRST, start


def test_a_member_of_a_ps_job_has_its_cluster_and_no_rank() -> None:
    order = start(1, FIRST).message
    assert isinstance(order, Start)
    of_ps = replace(order, tf_config='{"task": {}}', worker_id=3, worker_num=2)
    assert common(order).keys() >= {"WORLD_SIZE", "MASTER_ADDR"}
    assert common(of_ps) == {
        "WORKER_TYPE": "worker",
        "WORKER_ID": "3",
        "WORKER_RANK": "0",
        "WORKER_NUM": "2",
        "OUTRIDER_GENERATION": str(FIRST),
    }
    assert of_rank(order, 1, "/v").items() >= {"RANK": "1", "LOCAL_RANK": "1"}.items()
    assert of_rank(of_ps, 1, "/v") == {"LOCAL_RANK": "1"}
    assert defaults(order) == {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": "1"}
    assert defaults(of_ps) == {"TF_CONFIG": '{"task": {}}'}
