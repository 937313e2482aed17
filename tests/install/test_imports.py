"""Each module can be the first of ours that a process imports: a command reads no more of it than it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    files = [path.relative_to(ROOT) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    those = [name for name in names if not name.endswith("__main__")]
    script = IMPORTING.replace("{folders}", repr(FOLDERS))
    done = subprocess.run([sys.executable, "-c", script, *those], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
