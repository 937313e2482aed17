"""A stage for the master's core: well-behaved members, a platform and a disk that answer its actions, on a clock of
their own.

Nothing here is a mock: the core is driven through `step` alone, with events in the order in which a real shell would
bring them, and every step is checked against the invariants. A test tells members to crash, freeze or be cut off, looks
at the actions, and asks what `stage.queries` answers.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core.actions import Action
from outrider.master.core.events import Began, PodsListed
from outrider.master.core.spec import JobSpec
from outrider.wire.ids import JobName
from tests.unit.master.core.stage.actor import LATENCY, START_SECONDS, STEP_SECONDS, Actor
from tests.unit.master.core.stage.members import Members

__all__ = ["START_SECONDS", "STEP_SECONDS", "Actor", "Play", "job", "kinds", "names", "running"]
BEGAN_AT = 1_700_000_000.0
"""By the wall clock."""


class Play(Members):
    """A job on its stage."""

    def __init__(self, spec: JobSpec | None = None, *, term: int = 1, saved: dict[str, object] | None = None,
                 actors: dict[str, Actor] | None = None, now: float = 0.0, master: str = "m1",
                 clock_is_ahead: float = 0.0, is_left: bool = False) -> None:  # fmt: skip
        super().__init__(spec or job(), now, actors or {}, master)
        self.saved, self.term = saved, term
        self.unix_offset = BEGAN_AT + clock_is_ahead
        """Add it to `now` for the wall clock."""
        self.tell(Began(term, self.spec, saved, now + self.unix_offset, is_left))
        alive = tuple(self.pod(a) for a in self.actors.values() if not a.gone)
        self.after(LATENCY, lambda: self.tell(PodsListed(alive)))
        for actor in list(self.actors.values()):
            if not actor.gone:
                self.after(0.1, lambda actor=actor: self.connect(actor))
                self.after(0.2, lambda actor=actor: self.report(actor))


def job(members: int = 4, least: int | None = None, **policy: object) -> JobSpec:
    """A job of so many workers, `least` of which are enough."""
    least = members if least is None else least
    return JobSpec(JobName("digits"), least, members, members, **policy)  # type: ignore[arg-type]


def running(members: int = 4, least: int | None = None, *, steps: bool = True, **policy: object) -> Play:
    """A job that has trained for two seconds."""
    play = Play(job(members, least, **policy))
    play.until_running(members)
    if steps:
        play.run(2.0)
    play.actions.clear()
    return play


def names(*numbers: int) -> list[str]:
    return [f"worker-{n}" for n in numbers]


def kinds(actions: Iterator[Action] | list[Action]) -> list[str]:
    return [type(a).__name__ for a in actions]
