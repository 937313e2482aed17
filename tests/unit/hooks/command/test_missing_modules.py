"""Whether the module of -m exists, searched as by Python and without an import."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from training_hooks.command.invocation import Invocation
from training_hooks.command.trainer_detection import is_missing


class Editable:
    """A finder as an editable installation puts it on sys.meta_path: one package, at another place."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return importlib.machinery.PathFinder.find_spec(name, [str(self.folder)]) if name == self.name else None


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("raise RuntimeError('it was imported')")
    (tmp_path / "mine" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    finder = Editable("mine", tmp_path)
    sys.meta_path.append(finder)
    yield tmp_path
    sys.meta_path.remove(finder)


def missing(name: str, kind: str = "module") -> bool:
    return bool(is_missing(Invocation(kind, name, [], [])))


def test_a_module_is_missing_if_no_finder_knows_it_or_a_part_of_it(elsewhere: Path) -> None:
    assert [missing(name) for name in ("json.tool", "sys", "mine", "mine.train")] == [False] * 4
    assert [missing(name) for name in ("no.such.module", "json.nothing", "mine.other", "mine.train.more")] == [True] * 4
    assert "mine" not in sys.modules


def test_a_script_or_code_is_never_a_missing_module() -> None:
    assert not missing("no/such/script.py", "script")
    assert not missing("no.such", "code")
