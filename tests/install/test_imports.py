"""Each module can be the first of ours that a process imports: a command reads no more of it than it needs."""

from __future__ import annotations

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
IMPORTING = """
import importlib, sys
for name in sys.argv[1:]:
    for known in [each for each in sys.modules if each.partition(".")[0] == "outrider"]:
        del sys.modules[known]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, error)
"""


def test_each_module_can_be_imported_first() -> None:
    """One outside all import circles can if those that it imports can: only the others, and those that nobody imports,
    are tried."""
    graph = grimp.build_graph("outrider", exclude_type_checking_imports=True, cache_dir=None)
    tried = [
        name
        for name in sorted(graph.modules)
        if not name.endswith("__main__")
        and (
            not graph.find_modules_that_directly_import(name)
            or any(graph.chain_exists(each, name) for each in graph.find_modules_directly_imported_by(name))
        )
    ]
    command = [sys.executable, "-c", IMPORTING, *tried]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count."""
    graph = grimp.build_graph("outrider", "training_hooks", exclude_type_checking_imports=True, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names a circle


@pytest.mark.parametrize("name", ["master", "sidecar"])
def test_a_package_has_one_name(name: str) -> None:
    """These folders stand at the top of the repository: from there, too, they are imported as parts of `outrider`."""
    script = f"import {name}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert f"'{name}' is imported as outrider.{name}" in done.stderr
