"""`checkpointMemory` and `checkpointPath`: how much memory of the trainer's a member keeps checkpoints in, and of which
file.

The hooks fill it at the start, so that it is the trainer's container that pays for it and a shortage is an error then;
the volume that it lies in has to be larger by it.
"""

from __future__ import annotations

from outrider.master.core import quantities

VARIABLE, PATH_VARIABLE = "OUTRIDER_CHECKPOINT_MEMORY", "OUTRIDER_CHECKPOINT_PATH"
LEAST, LONGEST = 1 << 20, 1024
PATH_MAY_BE = "it is the name of the file that the script gives to torch.save, as ckpt/last.pt"
MAY_BE = "it may be 512Mi, 2Gi or a number of bytes, from 1Mi on"


def parsed(amount: object) -> int:
    """Bytes. Raises ValueError."""
    size = quantities.parsed(amount)
    if size is None or size < LEAST:
        raise ValueError(f"{amount!r} is no amount of memory for checkpoints; {MAY_BE}")
    return size


def parsed_path(text: str) -> str:
    """Raises ValueError."""
    path = text.strip()
    if path.rpartition("/")[2] in ("", ".", "..") or len(path) > LONGEST or not path.isprintable():
        raise ValueError(f"{text!r} names no file; {PATH_MAY_BE}")
    if path.startswith("~") or set(path) & set("*?"):
        raise ValueError(f"{text!r} is taken as it is, and '~', '*' and '?' stand for nothing in it; {PATH_MAY_BE}")
    return path


def volume_size(least: str, size: int) -> str:
    """Of the pod's volume, with the checkpoints in it."""
    return quantities.written((quantities.parsed(least) or 0) + size) if size else least
