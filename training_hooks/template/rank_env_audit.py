"""Detects a module that reads its rank while it is imported.

In a template RANK and similar variables are not set yet, and each worker process gets its own. A module that keeps the
value (lightning's `rank_zero_only` does) would take every rank for rank 0. So os.environ reports reads during the early
imports, and such a module is left to the worker processes, like one that starts threads.

torch itself (2.13) reads none of them while it is imported; this was observed with `import torch` and all of
`template.preimport.BEHIND`. `torch.distributed` reads RANK, WORLD_SIZE, MASTER_* and TORCHELASTIC_* inside functions
that run after the fork. TORCHDYNAMO/TORCHINDUCTOR settings come with the container, the same for template and ranks. A
later torch that reads them is detected like any other module; it then costs its import at each start, but never gives a
wrong rank.

Iterating over all variables does not count (tqdm, which torch imports, searches them for its own): only a read by name
does. A container's own RANK is removed meanwhile, so that even a copy has no wrong rank. Reads in C are not seen.
"""

import os

NAMES = {
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
}  # fmt: skip
"""Variables that a generation sets for a worker process."""
GPUS = {"CUDA_VISIBLE_DEVICES"}
"""A variable that also differs between ranks if members share the GPUs of their machine (OUTRIDER_GPUS)."""


class Watch:
    """A context in which `seen(name)` is called at each read of one of these variables. os.environ stays the same
    object, so reads through `from os import environ` are seen too; its class is restored at the end."""

    def __init__(self, seen):
        self.seen, self.plain, self.away = seen, type(os.environ), {}

    def __enter__(self):
        plain, seen = self.plain, self.seen
        names = NAMES | GPUS if "OUTRIDER_GPUS" in os.environ else NAMES

        class Watched(plain):
            def __getitem__(self, name):
                if name in names or (isinstance(name, bytes) and os.fsdecode(name) in names):
                    seen(os.fsdecode(name))
                return plain.__getitem__(self, name)

        self.away = {name: os.environ.pop(name) for name in names if name in os.environ}
        for each in self._both():
            each.__class__ = Watched
        return self

    def __exit__(self, *_):
        for each in self._both():
            each.__class__ = self.plain
        os.environ.update(self.away)

    @staticmethod
    def _both():
        return [os.environ, os.environb]
