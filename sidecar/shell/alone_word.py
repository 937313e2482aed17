"""The word in the pod's volume that says for good how it trains (`core/unsupervised.py`).

`training_hooks/process/unsupervised.py` writes the same file. It is made by a link: of two who write at once one is
first.
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
    """The pid of the command that runs alone."""


def read(folder: Path) -> Word:
    """An empty one while nothing is decided."""
    try:
        word, _, pid = (folder / FILE).read_text()[:64].strip().partition(" ")
    except (OSError, UnicodeDecodeError):
        return Word()
    return Word(word, int(pid) if pid.isascii() and pid.isdigit() else 0)


def keep(folder: Path, word: str, trainer: int) -> str:
    """The word that stands there then. Raises OSError."""
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
