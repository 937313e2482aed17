"""An experiment of examples/, as its user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.reading import listed

RUN = Path(__file__).parents[2] / "examples" / "experiments" / "run.py"


def test_an_experiment_shows_what_it_promises_and_leaves_nothing(installed: None) -> None:
    done = subprocess.run([sys.executable, str(RUN), "process"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("DLRover, as documented", "was killed by SIGKILL", "the same four", "Succeeded; pods: 4 Completed"):
        assert words in done.stdout
    left = [each for each in listed("namespaces") if each["metadata"]["name"].startswith("experiment-process-")]
    assert all("deletionTimestamp" in each["metadata"] for each in left)
