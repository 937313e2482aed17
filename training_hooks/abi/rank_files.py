"""Paths of the files of a worker process in the member's volume."""

from __future__ import annotations

import os


def page_folder(volume: str) -> str:
    return os.path.join(volume, "progress")


def page_path(volume: str, local_rank: int) -> str:
    return os.path.join(page_folder(volume), str(local_rank))


def stack_path(volume: str, local_rank: int) -> str:
    return os.path.join(volume, "stacks", str(local_rank))


def error_paths(volume: str, local_rank: int) -> tuple[str, str]:
    """(error file of the hooks, error file named in TORCHELASTIC_ERROR_FILE)."""
    folder = os.path.join(volume, "errors")
    return os.path.join(folder, "%s.json" % local_rank), os.path.join(folder, "%s.torch.json" % local_rank)
