"""The environment of worker processes: every variable that torchrun 2.13 sets, with the same values.

Source: LocalElasticAgent._start_workers and SubprocessHandler in torch 2.13. As in torchrun, there are two kinds:
variables that are always set, and `defaults` that are set only if the user has not (OMP_NUM_THREADS, to 1 if a member
runs several processes; TORCH_NCCL_ASYNC_ERROR_HANDLING).
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.wire.messages.generation import Start


def common(start: Start) -> dict[str, str]:
    """The variables that all worker processes of a member share."""
    if start.tf_config:
        return _of_ps_job(start)
    elastic = {"OUTRIDER_ELASTIC_DATA": "1"} if start.elastic_data else {}
    kept = {"OUTRIDER_KEEP_GLOBAL_BATCH": str(start.keep_batch_of)} if start.keep_batch_of else {}
    required = {"OUTRIDER_REQUIRE_RESUME": "1"} if start.require_resume else {}
    begun = f"{start.begins_from}:{start.begins_in}"
    begins = {"OUTRIDER_CHECKPOINT_FROM": begun} if start.begins_from >= 0 else {}
    return {
        "GROUP_RANK": str(start.group_rank),
        "GROUP_WORLD_SIZE": str(start.group_world_size),
        "LOCAL_WORLD_SIZE": str(start.nproc),
        "WORLD_SIZE": str(start.world_size),
        "ROLE_NAME": str(start.role),
        "ROLE_WORLD_SIZE": str(start.role_world_size),
        "MASTER_ADDR": start.master_addr,
        "MASTER_PORT": str(start.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(start.restart_count),
        "TORCHELASTIC_MAX_RESTARTS": str(start.max_restarts),
        "TORCHELASTIC_RUN_ID": str(start.job),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "OUTRIDER_GENERATION": str(start.generation),
        **elastic,
        **kept,
        **required,
        **begins,
    }


def _of_ps_job(start: Start) -> dict[str, str]:
    """A PS job has no ranks and no world size; its other tasks are in TF_CONFIG, one of the `defaults`."""
    return {
        "WORKER_TYPE": str(start.role),
        "WORKER_ID": str(start.worker_id),
        "WORKER_RANK": str(start.rank_index),
        "WORKER_NUM": str(start.worker_num),
        "OUTRIDER_GENERATION": str(start.generation),
    }


def gpus(start: Start, shares: Sequence[str]) -> dict[str, str]:
    """The GPUs that this rank index's ranks see, if local members share the machine's GPUs; otherwise empty."""
    return {"CUDA_VISIBLE_DEVICES": shares[start.rank_index]} if start.rank_index < len(shares) else {}


def of_rank(start: Start, local_rank: int, volume: str) -> dict[str, str]:
    """The variables of one worker process, besides the common ones; `volume` is the path of the member's volume."""
    if start.tf_config:
        return {"LOCAL_RANK": str(local_rank)}
    return {
        "LOCAL_RANK": str(local_rank),
        "RANK": str(start.first_rank + local_rank),
        "ROLE_RANK": str(start.role_first_rank + local_rank),
        "TORCHELASTIC_ERROR_FILE": f"{volume}/errors/{local_rank}.torch.json",
    }


def defaults(start: Start) -> dict[str, str]:
    """The variables that are set only if the container has not set them."""
    if start.tf_config:
        return {"TF_CONFIG": start.tf_config}
    threads = {"OMP_NUM_THREADS": "1"} if start.nproc > 1 else {}
    return {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **threads}
