"""`checkpointMemory` and `checkpointPath`: the memory for a member's in-memory checkpoints, and the file they are of.

The hooks fill the memory at the start, so it is charged to the trainer's container and a shortage is an error at once.
The volume that holds this memory is enlarged by the same amount.
"""

from __future__ import annotations

from outrider.master.core import quantities
from outrider.master.core.k8s.values.field_errors import invalid

VARIABLE, PATH_VARIABLE = "OUTRIDER_CHECKPOINT_MEMORY", "OUTRIDER_CHECKPOINT_PATH"
LEAST, LONGEST = 1 << 20, 1024
PATH_MAY_BE = "must be the file name that the script passes to torch.save, such as ckpt/last.pt"
MAY_BE = "must be an amount of memory of at least 1Mi, such as 512Mi, 2Gi or a number of bytes"


def parsed(amount: object) -> int:
    """The amount in bytes. Raises ValueError."""
    size = quantities.parsed(amount)
    if size is None or size < LEAST:
        raise ValueError(invalid("", amount, MAY_BE))
    return size


def parsed_path(text: str) -> str:
    """The path without surrounding spaces. Raises ValueError."""
    path = text.strip()
    if path.rpartition("/")[2] in ("", ".", "..") or len(path) > LONGEST or not path.isprintable():
        raise ValueError(invalid("", text, PATH_MAY_BE))
    if path.startswith("~") or set(path) & set("*?"):
        raise ValueError(invalid("", text, f"{PATH_MAY_BE}, without '~', '*' and '?', which are not expanded"))
    return path


def volume_size(least: str, size: int) -> str:
    """The size of the pod's volume, with the in-memory checkpoints in it."""
    return quantities.written((quantities.parsed(least) or 0) + size) if size else least
