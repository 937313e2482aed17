"""Makes, in the image, the module names that the release before this one started: an old Deployment runs `-m master`
with the new image, and a command of either release runs `-m sidecar.ask` in pods of either. No wheel has them; they go
with the next release."""

from __future__ import annotations

import sysconfig
from pathlib import Path

STARTED = ("master/__main__", "sidecar/__main__", "sidecar/ask")


def main(site: Path) -> None:
    for path in STARTED:
        file = site / f"{path}.py"
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        module = "outrider." + path.removesuffix("/__main__").replace("/", ".")
        file.write_text(f"import runpy\n\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n")


if __name__ == "__main__":
    main(Path(sysconfig.get_path("purelib")))
