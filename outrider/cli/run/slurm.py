"""Checks how `outrider run` was started within Slurm: it must run once, on one node of the allocation.

Slurm's variables describe the allocation and how this command was started (man srun, OUTPUT ENVIRONMENT VARIABLES).
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.cli.errors import UserError

SEVERAL = "Several machines need Kubernetes (docs/get-started/cluster.md)."


def about_slurm(environ: Mapping[str, str]) -> list[str]:
    """Warnings about the allocation; UserError if srun has started this command once per rank."""
    tasks, nodes = _number(environ, "SLURM_STEP_NUM_TASKS"), _number(environ, "SLURM_JOB_NUM_NODES")
    if tasks > 1:
        raise UserError(
            f"srun has started this command {tasks} times, but outrider run starts the ranks itself. Use: srun "
            f"--ntasks=1 outrider run --nproc-per-node N …. {SEVERAL}"
        )
    if nodes > 1:
        return [
            f"this Slurm allocation has {nodes} nodes, but outrider run uses only the node it was started on. {SEVERAL}"
        ]
    return []


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 1
