"""Notices a module that looks at its rank while it is imported.

In a template RANK and its like are not set yet, and each worker process gets its own: a module that keeps what it saw
(lightning's `rank_zero_only` does) would believe in every rank that it is rank 0. So os.environ watches its readers
during the early imports, and such a module is left to the worker processes, like one that starts threads.

Of torch itself (2.13) nothing reads them while it is imported, seen by watching `import torch` and all of
`template.preimport.BEHIND`: `torch.distributed` reads RANK, WORLD_SIZE, MASTER_* and TORCHELASTIC_* inside functions
that run after the fork, and TORCHDYNAMO/TORCHINDUCTOR settings come with the container, the same for template and
ranks. A later torch that does read them is noticed like any other module, and costs its import at each start, never a
wrong rank.

A look at all variables at once is none (tqdm, which torch imports, goes through them for its own): only a name that is
asked for counts. So that even a copy holds no wrong rank, a container's own RANK is taken away meanwhile. What reads
the environment in C is not seen.
"""

import os

NAMES = {
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
}  # fmt: skip
"""What a generation gives to a worker process."""
GPUS = {"CUDA_VISIBLE_DEVICES"}
"""A rank has its own of this, too, where members share the GPUs of their machine (OUTRIDER_GPUS)."""


class Watch:
    """A context: `tell(name)` is called at each look at one of these variables. os.environ stays the same object, so
    that whoever has taken it by `from os import environ` is seen too; its class is put back at the end."""

    def __init__(self, tell):
        self.tell, self.plain, self.away = tell, type(os.environ), {}

    def __enter__(self):
        plain, tell = self.plain, self.tell
        names = NAMES | GPUS if "OUTRIDER_GPUS" in os.environ else NAMES

        class Watched(plain):
            def __getitem__(self, name):
                if name in names or (isinstance(name, bytes) and os.fsdecode(name) in names):
                    tell(os.fsdecode(name))
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
