"""What a test may ask of the job that is played.

Answered by the status document, the journal's line, the actions and the Events, wherever these show it. What they do
not show is read from the core's state in `Inside` and nowhere else in the tests of this core: another shape of the
state changes that class alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from outrider.master.core import job_kinds
from outrider.master.core.actions import Announce, DeletePod, EndJob, Send
from outrider.master.core.ps.state import PsState
from outrider.master.core.state.generation import Place
from outrider.master.core.status.document import LIVING_STATES
from outrider.wire.ids import Generation
from tests.unit.master.core.stage.driving import Stage


class Fault(NamedTuple):
    """A row of the status document's `faults`."""

    kind: str
    member: str | None
    reason: str
    seconds_lost: float | None


class Inside(Stage):
    """What no document, action or Event shows, or what is asked too often to be read there."""

    @property
    def stage(self) -> str:
        """What is going on, as the journal calls it."""
        return str(self.state.stage)

    def places(self) -> Mapping[str, Place]:
        """Who has which ranks in the present world, if there is one."""
        return {} if self.state.world is None else self.state.world.places

    def ready(self) -> set[str]:
        """Who may be part of the next generation."""
        return set(self.state.ready)

    def wanted(self) -> int:
        """Members that the job is to have."""
        return self.state.target

    def restarts_used(self) -> int:
        return (self.state if isinstance(self.state, PsState) else self.state.faults).restarts.used

    def relaunches_used(self, rank_index: int | None = None) -> int:
        """Of the whole job, or those of a rank index whose members failed."""
        failed = self.state.placement.failed_relaunches
        return (
            self.state.placement.relaunches
            if rank_index is None
            else failed[rank_index].used
            if rank_index in failed
            else 0
        )

    def saved_steps(self) -> dict[str, int]:
        """The newest checkpoints, by path."""
        return dict(self.state.progress.saves)

    def prints(self) -> dict[str, int]:
        """Steps by the fingerprints of checkpoints' files."""
        return dict(self.state.progress.prints)

    def is_running(self, members: int | None = None) -> bool:
        """The whole of a world has acknowledged its Start."""
        world = self.state.world
        if world is None or self.stage != "running" or len(world.started) != len(world.places):
            return False
        return members is None or len(world.places) == members

    def steps_remembered(self) -> int:
        """Of which ranks have said that they have them in memory, and which the core keeps in mind."""
        return 0 if self.state.world is None else len(self.state.world.keeping.said)

    def timers(self) -> int:
        """Moments that the core keeps in mind, those among them that are cancelled and not yet forgotten."""
        return len(self.state.deadlines._heap)

    def adopt(self) -> None:
        """From now on another controller makes the pods."""
        self.state.spec = self.spec = replace(self.spec, is_adopted=True)


class Queries(Inside):
    # -- the journal's line of the state
    @property
    def generation(self) -> Generation:
        """The newest that was agreed."""
        term, number = job_kinds.describe(self.state).split()[1].split(".")
        return Generation(int(term), int(number))

    @property
    def phase(self) -> str:
        return job_kinds.phase_of(self.state)

    @property
    def is_over(self) -> bool:
        """It ends, or has."""
        return self.stage in ("finishing", "ended")

    @property
    def is_ended(self) -> bool:
        return self.stage == "ended"

    def position(self) -> job_kinds.Position:
        """As the record of the training's progress has it."""
        return job_kinds.position(self.state)

    def lacks_room(self) -> bool:
        """For the least members that it needs."""
        return job_kinds.lacks_room(self.state)

    # -- the status document
    def handed_over(self) -> dict[str, Any]:
        """What the next master reads: of the newest status that was written."""
        assert self.saved is not None
        return self.saved["saved"]

    def status(self) -> dict[str, Any]:
        return job_kinds.document(self.state, self.now)

    @property
    def message(self) -> str:
        return str(self.status()["message"])

    @property
    def exit_code(self) -> int | None:
        return self.status()["exit_code"]

    @property
    def highest_step(self) -> int:
        """That was ever made."""
        return int(self.status()["step"])

    def faults(self) -> list[Fault]:
        return [Fault(*(each[name] for name in Fault._fields)) for each in self.status()["faults"]]

    def member(self, member: str) -> dict[str, Any]:
        """Its row, whether it is still there or not."""
        return next(each for each in self.status()["members"] if each["id"] == member)

    def members(self) -> list[str]:
        """Who is there."""
        return [each["id"] for each in self.status()["members"] if each["state"] in LIVING_STATES]

    def holder_of(self, rank_index: int) -> str:
        rows = self.status()["members"]
        return next(e["id"] for e in rows if e["rank_index"] == rank_index and e["state"] in LIVING_STATES)

    def state_of(self, member: str) -> str:
        """As the document says it; empty where there never was such a member."""
        return next((each["state"] for each in self.status()["members"] if each["id"] == member), "")

    def scaling(self) -> dict[str, Any]:
        """Of a job that finds its own size."""
        return self.status()["scaling"]

    def has_settled(self) -> bool:
        """It has found its size by what it measured, and says when it measures again."""
        return self.scaling()["next_evaluation"] is not None

    def lacks_room_to_grow(self) -> bool:
        """It wanted to be larger, and has gone back."""
        return self.scaling()["condition"] == "Stop"

    def is_checking(self) -> bool:
        """Some members measure each other."""
        return any(each["state"] == "checking" for each in self.status()["members"])

    # -- actions and Events
    def announced(self, kind: str) -> list[Announce]:
        return [a for a in self.actions if isinstance(a, Announce) and a.kind == kind]

    def sent(self, kind: type, member: str | None = None) -> list[Send]:
        return [a for a in self.actions if isinstance(a, Send) and isinstance(a.message, kind)
                and (member is None or a.member == member)]  # fmt: skip

    def deleted(self) -> list[str]:
        return [a.member for a in self.actions if isinstance(a, DeletePod)]

    def ended(self) -> EndJob | None:
        return next((a for a in self.actions if isinstance(a, EndJob)), None)

    @property
    def world(self) -> list[str]:
        """Its members, in the order of their ranks."""
        return [str(each) for each in self.places()]

    # -- waiting
    def until_running(self, members: int | None = None, limit: float = 60.0) -> float:
        return self.until(lambda: self.is_running(members), limit)

    def until_next(self, members: int | None = None, limit: float = 60.0) -> float:
        """Until a generation after the present one runs."""
        number = self.generation.number
        return self.until(lambda: self.is_running(members) and self.generation.number > number, limit)
