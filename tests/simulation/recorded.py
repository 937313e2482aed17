"""Worlds whose masters keep a journal, as the pump of a real one does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from outrider.runtime.journal import Journal, Shelf
from tests.simulation.outages import OutageWorld
from tests.simulation.ps import PsWorld
from tests.simulation.world import World

JOURNAL_BYTES = 40_000
"""So few that a journal of a seed begins in the middle of its master's life."""


class RecordedWorld(World):
    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.journals: list[Journal] = []
        super().__init__(seed, verbose)

    def master_core(self, term: int) -> tuple[Any, Any]:
        core, state = super().master_core(term)
        journal = Journal(shelf=Shelf(each=JOURNAL_BYTES))
        journal.follow(lambda: state)
        self.journals.append(journal)

        def step(state: Any, event: Any, now: float) -> list[Any]:
            journal.event(now, event)
            actions: list[Any] = core.step(state, event, now)
            for action in actions:
                journal.action(now, action)
            return actions

        return SimpleNamespace(step=step, next_deadline=core.next_deadline, check=core.check), state


class RecordedPsWorld(RecordedWorld, PsWorld):
    pass


class RecordedOutageWorld(RecordedWorld, OutageWorld):
    pass
