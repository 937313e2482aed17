"""A process's own stack, as faulthandler writes it when it is asked."""

from __future__ import annotations

import faulthandler
import os
import time
from pathlib import Path

from training_hooks.telemetry import stacks

DEADLINE = 300.0


def test_of_a_stack_that_is_too_long_the_end_is_kept_where_the_main_thread_is(tmp_path: Path) -> None:
    path = tmp_path / "stacks" / "0"
    file = stacks.install(str(path))
    try:
        dump, until = stacks.Dump(os.getpid(), str(path), most=100), time.monotonic() + DEADLINE
        while (text := dump.poll()) is None and time.monotonic() < until:
            pass
        assert text == path.read_text()[-100:]
    finally:
        faulthandler.unregister(stacks.NUMBER)
        file.close()
