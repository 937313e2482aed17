"""The wrapped functions of frameworks, on small modules with their names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training_hooks.frameworks import huggingface


def newest(folder: str) -> str | None:
    """Chooses as transformers does: by the number in the name, whatever the folder contains."""
    names = [name for name in os.listdir(folder) if name.startswith("checkpoint-")]
    return os.path.join(folder, max(names, key=lambda name: int(name.split("-")[1]))) if names else None


@pytest.fixture
def utils() -> Any:
    return SimpleNamespace(get_last_checkpoint=newest, _re_checkpoint=re.compile(r"^checkpoint\-(\d+)$"))


def make(folder: Path, *whole: int, torn: tuple[int, ...] = ()) -> None:
    for number in (*whole, *torn):
        (folder / f"checkpoint-{number}").mkdir()
        (folder / f"checkpoint-{number}" / "model.safetensors").touch()
    for number in whole:
        (folder / f"checkpoint-{number}" / "trainer_state.json").touch()


def test_an_incomplete_folder_is_skipped_for_the_newest_complete_one(tmp_path: Path, utils: Any) -> None:
    huggingface.wrap_last_checkpoint(lambda: "a worker", utils)
    make(tmp_path, 5, 10, 100, torn=(110, 120))
    assert utils.get_last_checkpoint(str(tmp_path)) == str(tmp_path / "checkpoint-100")


def test_folders_of_which_none_is_the_trainer_s_and_other_processes_are_left_to_it(tmp_path: Path, utils: Any) -> None:
    huggingface.wrap_last_checkpoint(lambda: "a worker", utils)
    assert utils.get_last_checkpoint(str(tmp_path)) is None
    make(tmp_path, torn=(5, 10))
    assert utils.get_last_checkpoint(str(tmp_path)) == str(tmp_path / "checkpoint-10")


def test_outside_of_a_rank_nothing_is_changed(tmp_path: Path, utils: Any) -> None:
    huggingface.wrap_last_checkpoint(lambda: None, utils)
    make(tmp_path, 5, torn=(10,))
    assert utils.get_last_checkpoint(str(tmp_path)) == str(tmp_path / "checkpoint-10")
