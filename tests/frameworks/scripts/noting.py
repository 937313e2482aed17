"""What each rank writes down of its own steps, beside the script: the test believes nothing else of the training.

`note(step)` comes behind each step. A test lets all ranks stand still there (`hold`), hurts the job, and lets it go on.
"""

import os
import time
from pathlib import Path

STEPS, EVERY = 50, 5


def note(step):
    """`step` is the number of the step that was just made, as the script counts."""
    with open(f"trace-{os.environ['RANK']}", "a") as trace:
        trace.write(f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {step} {time.time()} {os.getpid()}\n")
    time.sleep(0.03)
    while step >= int(Path("hold").read_text() or 0):
        time.sleep(0.01)
