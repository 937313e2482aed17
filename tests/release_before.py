"""The release before this one, as this repository's history has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

COMMIT = "667670a"
REPOSITORY = Path(__file__).parents[1]


def unpacked(folder: Path, *paths: str) -> Path:
    """Its files, or those below these paths, in the folder. Skips the test where the clone has less of the history."""
    archive = subprocess.run(["git", "archive", COMMIT, *paths], cwd=REPOSITORY, capture_output=True)
    if archive.returncode != 0:
        pytest.skip(f"{COMMIT} is not in the history of this clone")
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder
