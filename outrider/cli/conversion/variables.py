"""Environment variables that other controllers set in their pods, but Outrider does not."""

from __future__ import annotations

import re
from collections.abc import Mapping

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document

OF_DLROVER = {
    "NODE_NUM": "use WORKER_NUM, the number of members",
    "NODE_RANK": "use WORKER_RANK, the rank index of the pod",
    "NODE_ID": "use WORKER_ID, the number in the pod's name",
    "DLROVER_MASTER_ADDR": "DLRover's master does not exist here",
    "ELASTIC_JOB_NAME": "use the label outrider.dev/job, which has the name",
    "JOB_NAME": "use the label outrider.dev/job, which has the name",
}
"""Environment variables of DLRover's pods that ours do not have, and what to use instead."""
_TORCHRUN_SETS = "only the ranks have it, a shell before torchrun does not"
OF_PYTORCHJOBS = {
    "PET_NNODES": "use WORKER_NUM, the number of members",
    "PET_NODE_RANK": "use WORKER_RANK, the rank index of the pod",
    "PET_NPROC_PER_NODE": "set spec.nprocPerNode",
    "PET_MASTER_ADDR": _TORCHRUN_SETS,
    "PET_MASTER_PORT": _TORCHRUN_SETS,
    "PET_RDZV_ENDPOINT": "the master chooses the rendezvous",
}
"""Environment variables of the pods of PyTorchJobs that ours do not have, and what to use instead."""
OF_WORKERS_ALONE = dict.fromkeys(("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"), _TORCHRUN_SETS) | OF_PYTORCHJOBS
"""The same for a job without a master: with a master, pods have the first four (`k8s.pods.build.pod_of`)."""


def unset(container: Document, path: str, known: Mapping[str, str]) -> list[str]:
    """Notes about variables that the container's command uses, that it does not set itself, and that only another
    controller would set."""
    text = " ".join(str(word) for part in ("command", "args") for word in entries(container.get(part)))
    own = {mapping(entry).get("name") for entry in entries(container.get("env"))}
    return [
        f"{path}: ${name} is not set here: {why}."
        for name, why in known.items()
        if name not in own
        and re.search(rf"(\$[{{(]*{name}\b)|(\(\({name}\b)", text)
        and not re.search(rf"(^|[\s;&|]){name}=", text)
    ]
