"""The file in the pod's volume that records for good how the pod trains (`core/unsupervised.py`).

`training_hooks/process/unsupervised.py` writes the same file. It is created by a hard link, so that of two concurrent
writers exactly one succeeds.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

FILE = "supervision"


class Word(NamedTuple):
    word: str = ""
    trainer: int = 0
    """Pid of the command that runs unsupervised; 0: none."""


def read(folder: Path) -> Word:
    """The recorded word; empty while nothing is decided."""
    try:
        word, _, pid = (folder / FILE).read_text()[:64].strip().partition(" ")
    except (OSError, UnicodeDecodeError):
        return Word()
    return Word(word, int(pid) if pid.isascii() and pid.isdigit() else 0)


def keep(folder: Path, word: str, trainer: int) -> str:
    """Records the word unless another one is recorded; returns the recorded word. Raises OSError."""
    before, path = folder / f".{FILE}.{os.getpid()}", folder / FILE
    before.write_text(f"{word} {trainer}\n" if trainer else f"{word}\n")
    try:
        if read(folder).word == word:
            before.replace(path)  # another command of the same kind
        else:
            with contextlib.suppress(FileExistsError):
                os.link(before, path)
    finally:
        before.unlink(missing_ok=True)
    return read(folder).word
