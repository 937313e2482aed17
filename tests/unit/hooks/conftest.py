"""The hooks of a rank inside the test process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from training_hooks.abi import progress_page
from training_hooks.rank import worker


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Any]:
    """The hooks of rank 0, with a page and without torch."""
    finders = [*sys.meta_path]
    made = worker.Worker(str(tmp_path), 0, (1, 1))
    made.page.source = progress_page.FROM_OPTIMIZER
    yield made
    sys.meta_path[:] = finders
    made.channel.close()
