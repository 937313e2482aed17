"""The same stage for a PS job: its members are played as those of any job, and so is its platform."""

from __future__ import annotations

import dataclasses

from outrider.master.core import job_kinds
from outrider.master.core.actions import Action, CreatePod, Send
from outrider.master.core.events import Event
from outrider.master.core.ps.state import CHIEF, PsState
from outrider.master.core.spec import WORKER, JobSpec
from outrider.wire.messages.generation import Start, Stop
from tests.unit.master.core.play import Actor, Play, job
from tests.unit.master.core.ps.tally import assert_tallied


def ps_job(ps: int = 1, workers: int = 2, *, most: int = 0, chief: bool = True, evaluator: bool = False,
           **policy: object) -> JobSpec:  # fmt: skip
    """Addresses as a cluster's Services would have them."""
    most = most or workers
    spec = job(
        most,
        1,
        ps=tuple(f"digits-ps-{n}:2222" for n in range(ps)),
        workers=tuple(f"digits-worker-{n}:3333" for n in range(most)),
        chief="digits-chief-0:3333" if chief else "",
        has_evaluator=evaluator,
        **policy,
    )
    return dataclasses.replace(spec, replicas=workers)


class PsPlay(Play):
    """A PS job on its stage."""

    blind: frozenset[str] = frozenset()
    """Roles whose steps the hooks do not see."""

    def made(self, spec: JobSpec) -> job_kinds.Job:
        return PsState()

    def core(self, event: Event) -> list[Action]:
        actions = job_kinds.step(self.state, event, self.now)
        job_kinds.check(self.state)
        assert_tallied(self.state)
        return actions

    def report(self, actor: Actor) -> None:
        """Parameter servers and evaluators make no steps."""
        actor.has_pages = actor.role in (CHIEF, WORKER) and actor.role not in self.blind
        super().report(actor)

    def _beyond(self, actor: Actor, start: Start) -> None:
        if actor.has_pages:
            super()._beyond(actor, start)

    def runs(self) -> dict[tuple[str, int], str | None]:
        """Whose worker process runs, by role and rank index."""
        return {key: None if task.runs is None else str(task.runs.id) for key, task in self.state.tasks.items()}

    def is_running(self, members: int | None = None) -> bool:
        """All tasks, or so many of them."""
        found = self.runs().values()
        there = sum(each is not None for each in found)
        return there == (len(found) if members is None else members)

    def holder(self, role: str, index: int = 0) -> Actor:
        """Who is there now."""
        member = self.runs()[role, index]
        assert member is not None
        return self[member]


def training(*args: int, steps: float = 2.0, **policy: object) -> PsPlay:
    """A PS job that has trained for two seconds."""
    play = PsPlay(ps_job(*args, **policy))  # type: ignore[arg-type]
    play.until_running()
    play.run(steps)
    play.actions.clear()
    return play


def stopped(play: PsPlay) -> set[str]:
    """Who was told to stop."""
    return {a.member for a in play.actions if isinstance(a, Send) and isinstance(a.message, Stop)}


def created(play: PsPlay) -> list[tuple[str, int | None]]:
    """Member and rank index of each pod that was made."""
    return [(a.member, a.rank_index) for a in play.actions if isinstance(a, CreatePod)]
