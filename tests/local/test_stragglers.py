"""A member of a real job that becomes slow while it trains: named, shown, and replaced where that was asked for."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.training import Training, members, until

pytestmark = pytest.mark.slow
PATIENCE = 240.0
"""A member is named after half a minute of windows at the least."""
SLOWER = "time.sleep = (lambda sleep: lambda seconds: sleep(seconds + 0.15))(time.sleep)"
"""In the script's own pause behind each step, as if it waited for its data."""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Training]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    training = Training(tmp_path, home, "--nnodes", "3", "--exclude-straggler", "--silent-after", "10")
    try:
        yield training
    finally:
        training.close()
        shutil.rmtree(home)


def test_a_member_that_becomes_slow_is_named_and_replaced_while_it_trains_on(job: Training) -> None:
    restart, world = job.training(3)
    slow = members(world)[2]
    job.order(2, SLOWER)
    named = until(
        lambda: [e for e in job.events() if e["kind"] == "Straggler"], lambda: f"a name in {job.story()}", PATIENCE
    )
    assert [each["member"] for each in named] == [slow]
    assert (named[0]["severity"], named[0]["detail"]["cause"]) == ("warning", "waiting")
    _, new = job.training(3, after=restart)
    assert slow not in members(new)
    assert job.event("MemberLeaving", 0, slow)
    job.end_well()
