"""`outrider run` within Slurm: one node of an allocation, started once.

Slurm's own variables say what was allocated and how this command was started (man srun, OUTPUT ENVIRONMENT VARIABLES).
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.cli.errors import UserError

SEVERAL = "Several machines need Kubernetes (docs/get-started/cluster.md)."


def about_slurm(environ: Mapping[str, str]) -> list[str]:
    """What is to be said of the allocation; UserError where srun has started this command once a rank."""
    tasks, nodes = _number(environ, "SLURM_STEP_NUM_TASKS"), _number(environ, "SLURM_JOB_NUM_NODES")
    if tasks > 1:
        raise UserError(
            f"srun has started this command {tasks} times, and outrider run starts the ranks itself: srun --ntasks=1 "
            f"outrider run --nproc-per-node N …. {SEVERAL}"
        )
    if nodes > 1:
        return [
            f"this Slurm allocation has {nodes} nodes, and outrider run uses the one that it is started on. {SEVERAL}"
        ]
    return []


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 1
