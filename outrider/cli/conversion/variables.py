"""Environment variables that another controller sets in its pods and nobody sets in ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document

OF_DLROVER = {
    "NODE_NUM": "WORKER_NUM is the number of members",
    "NODE_RANK": "WORKER_RANK is the rank index of the pod",
    "NODE_ID": "WORKER_ID is the number in the pod's name",
    "DLROVER_MASTER_ADDR": "nothing of DLRover's runs here",
    "ELASTIC_JOB_NAME": "the label outrider.dev/job has the name",
    "JOB_NAME": "the label outrider.dev/job has the name",
}
"""Environment variables of DLRover's pods that ours do not have, and what to use."""
_TORCHRUN_SETS = "the ranks have it, a shell before torchrun has not"
OF_PYTORCHJOBS = {
    "PET_NNODES": "WORKER_NUM is the number of members",
    "PET_NODE_RANK": "WORKER_RANK is the rank index of the pod",
    "PET_NPROC_PER_NODE": "set spec.nprocPerNode",
    "PET_MASTER_ADDR": _TORCHRUN_SETS,
    "PET_MASTER_PORT": _TORCHRUN_SETS,
    "PET_RDZV_ENDPOINT": "there is no rendezvous to name",
}
"""The same of PyTorchJobs."""
OF_WORKERS_ALONE = dict.fromkeys(("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"), _TORCHRUN_SETS) | OF_PYTORCHJOBS
"""Beside a master pods have these four (`k8s.pods.build.pod_of`)."""


def unset(container: Document, path: str, known: Mapping[str, str]) -> list[str]:
    """Sentences about variables that its words name, that it does not set itself, and that only another controller
    would set."""
    text = " ".join(str(word) for part in ("command", "args") for word in entries(container.get(part)))
    own = {mapping(entry).get("name") for entry in entries(container.get("env"))}
    return [
        f"{path}: ${name} is not set here: {why}."
        for name, why in known.items()
        if name not in own
        and re.search(rf"(\$[{{(]*{name}\b)|(\(\({name}\b)", text)
        and not re.search(rf"(^|[\s;&|]){name}=", text)
    ]
