"""Jobs whose pods another controller makes."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.events import OwnerSized
from tests.unit.master.core.play import Play, job


def adopted(members: int, least: int = 1, most: int | None = None) -> Play:
    """It trains, and its owner was read."""
    play = Play(replace(job(members, least), is_adopted=True, max_members=members if most is None else most))
    play.run(0.1)
    for index in range(members):
        play.appears(f"train-{index}", index)
    play.tell(OwnerSized(members))
    play.until_running(members)
    play.run(2.0)
    play.actions.clear()
    return play
