"""What a master's journal holds can be played again: from the state that it begins with, event by event."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from outrider.master.core import job_kinds
from outrider.master.core.actions import Action
from outrider.master.core.events import Event
from outrider.runtime.journal import Journal, Shelf, text
from tests.unit.master.core.play import Play, job
from tests.unit.master.core.ps_play import PsPlay, ps_job


class Kept(Play):
    """A stage whose steps are written down, as the pump does."""

    def core(self, event: Event) -> list[Action]:
        self.journal.event(self.now, event)
        actions = job_kinds.step(self.state, event, self.now)
        for action in actions:
            self.journal.action(self.now, action)
        return actions

    @property
    def journal(self) -> Journal:
        if "_journal" not in self.__dict__:
            self._journal = Journal(shelf=Shelf(each=24_000))
            self._journal.follow(lambda: self.state)
        return self._journal


class KeptPs(Kept, PsPlay):
    pass


def shown(state: object) -> str:
    """Without the stale entries of deadlines, which go when somebody asks for the next."""
    return re.sub(r"_heap=\[[^\]]*\]", "", text(state))


def hurt(play: Play) -> None:
    play.until(lambda: play.step() > 3)
    for _ in range(4):
        play.run(8.0)
        play.crash("worker-1")
    play.run(20.0)


@pytest.mark.parametrize("made", [lambda: Kept(job(3)), lambda: KeptPs(ps_job())], ids=["allreduce", "ps"])
def test_a_journal_that_has_begun_anew_leads_to_the_same_state(made: Callable[[], Kept]) -> None:
    play = made()
    hurt(play)
    state, events = play.journal.begins_with(), play.journal.events()
    actions = [action for now, event in events for action in job_kinds.step(state, event, now)]
    assert shown(state) == shown(play.state)
    assert [text(action) for action in actions] == [text(action) for action in play.actions[-len(actions) :]]
    assert len(actions) < len(play.actions), "what is older was dropped"
