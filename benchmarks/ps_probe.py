"""examples/ps/click.py as it is, whose lines are kept with the moment of each: `FOLDER` comes before its own flags."""

import io
import json
import os
import runpy
import sys
import time
from pathlib import Path

import tensorflow.compat.v1  # noqa: F401  (as the script has it: imported before the fork)

FOLDER, SCRIPT = Path(sys.argv[1]), Path(__file__).parents[1] / "examples/ps/click.py"


class Stamped(io.TextIOBase):
    """One file a process, a line of which is read whole or not at all."""

    def __init__(self) -> None:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        self._file = (FOLDER / f"{task['type']}-{task['index']}.{os.getpid()}.txt").open("a", buffering=1)

    def write(self, text: str) -> int:
        for line in filter(None, text.splitlines()):
            self._file.write(f"{time.time():.4f} {line}\n")
        return len(text)


sys.argv[:2] = [str(SCRIPT)]
sys.stdout = Stamped()
runpy.run_path(str(SCRIPT), run_name="__main__")
