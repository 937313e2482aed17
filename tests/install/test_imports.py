"""Each module can be the first of ours that a process imports: a command reads no more of it than it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("wire", "runtime", "master", "sidecar", "cli")
IMPORTING = """
import importlib, sys
for name in sys.argv[1:]:
    for known in [each for each in sys.modules if each.partition(".")[0] in {folders}]:
        del sys.modules[known]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, error)
"""


def test_each_module_can_be_imported_first() -> None:
    """One outside all import circles can if those that it imports can: only the others, and those that nobody imports,
    are tried."""
    graph = grimp.build_graph(*FOLDERS, exclude_type_checking_imports=True, cache_dir=None)
    tried = [
        name
        for name in sorted(graph.modules)
        if not name.endswith("__main__")
        and (
            not graph.find_modules_that_directly_import(name)
            or any(graph.chain_exists(each, name) for each in graph.find_modules_directly_imported_by(name))
        )
    ]
    script = IMPORTING.replace("{folders}", repr(FOLDERS))
    done = subprocess.run([sys.executable, "-c", script, *tried], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
