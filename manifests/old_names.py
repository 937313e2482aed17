"""Creates in the image the module names that the previous release started.

An old Deployment runs `-m master` with the new image, and a command of either release runs `-m sidecar.ask` and the
hooks' `faults.py` in pods of either release. No wheel has these names; the next release removes them.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

MODULES = ("master/__main__", "sidecar/__main__", "sidecar/ask")
PROGRAM = """import os
import sys

_main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chaos", "main.py")
os.execv(sys.executable, [sys.executable, "-I", "-S", _main] + sys.argv[1:])
"""


def make_modules(site: Path) -> None:
    for path in MODULES:
        file = site / f"{path}.py"
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        module = "outrider." + path.removesuffix("/__main__").replace("/", ".")
        file.write_text(f"import runpy\n\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n")


if __name__ == "__main__":
    make_modules(Path(sysconfig.get_path("purelib")))
    (Path(sys.argv[1]) / "faults.py").write_text(PROGRAM)
