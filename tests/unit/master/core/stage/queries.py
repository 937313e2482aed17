"""Queries of a test about its job.

They read the status document, the journal's line, the actions and the Events. What these do not show is read from the
core's state in `Inside` and nowhere else in the tests of this core, so that a new shape of the state changes only that
class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from outrider.master.core import job_kinds
from outrider.master.core.actions import Announce, DeletePod, EndJob, Send
from outrider.master.core.ps.state import PsState
from outrider.master.core.state.counters import Counters
from outrider.master.core.state.generation import Place
from outrider.master.core.status.document import LIVING_STATES
from outrider.wire.ids import Generation, MemberId
from tests.unit.master.core.stage.driving import Stage


class Fault(NamedTuple):
    """A row of the status document's `faults`."""

    kind: str
    member: str | None
    reason: str
    seconds_lost: float | None


class Inside(Stage):
    """Queries of what no document, action or Event shows, or of what is read too often to be read there."""

    @property
    def stage(self) -> str:
        """The job's stage, as in the journal."""
        return str(self.state.stage)

    def places(self) -> Mapping[str, Place]:
        """The members of the present generation with their ranks; empty if there is none."""
        return {} if self.state.world is None else self.state.world.places

    def ready(self) -> set[str]:
        """The members that are ready for the next generation."""
        return set(self.state.ready)

    def suspects(self) -> set[str]:
        """The silent members of which it is not known yet whether they are lost."""
        return set(self.state.membership.suspected)

    def wanted(self) -> int:
        """The requested number of members."""
        return self.state.target

    def restarts_used(self) -> int:
        return (self.state if isinstance(self.state, PsState) else self.state.faults).restarts.used

    def relaunches_used(self, rank_index: int | None = None) -> int:
        """The relaunches of the whole job, or those after failures of one rank index."""
        failed = self.state.placement.failed_relaunches
        return (
            self.state.placement.relaunches
            if rank_index is None
            else failed[rank_index].used
            if rank_index in failed
            else 0
        )

    def saved_steps(self) -> dict[str, int]:
        """The step of the newest checkpoint at each path."""
        return dict(self.state.progress.saves)

    def prints(self) -> dict[str, int]:
        """The step of each fingerprint of a checkpoint's file."""
        return dict(self.state.progress.prints)

    def is_running(self, members: int | None = None) -> bool:
        """Whether all members of a generation have acknowledged its Start."""
        world = self.state.world
        if world is None or self.stage != "running" or len(world.started) != len(world.places):
            return False
        return members is None or len(world.places) == members

    def steps_remembered(self) -> int:
        """The number of steps that ranks have in memory, as far as the core remembers them."""
        return 0 if self.state.world is None else len(self.state.world.keeping.said)

    def timers(self) -> int:
        """The number of deadlines in the heap, including stale ones."""
        return len(self.state.deadlines._heap)

    def counters(self) -> Counters:
        """What only metrics show."""
        return self.state.counters  # type: ignore[no-any-return]

    def final_seconds(self) -> dict[str, float]:
        """The seconds of members by cause, as far as the cause is final."""
        return dict(self.state.account.seconds)

    def is_on(self, member: str, node: str) -> None:
        """Puts a member's pod on a node."""
        self.state.members[MemberId(member)].node = node

    def loses_patience(self) -> None:
        """No member is waited for any more."""
        self.state.patient = False

    def adopt(self) -> None:
        """Lets another controller create the pods from now on."""
        self.state.spec = self.spec = replace(self.spec, is_adopted=True)


class Queries(Inside):
    # -- the journal's line of the state
    @property
    def generation(self) -> Generation:
        """The newest agreed generation."""
        term, number = job_kinds.describe(self.state).split()[1].split(".")
        return Generation(int(term), int(number))

    @property
    def phase(self) -> str:
        return job_kinds.phase_of(self.state)

    @property
    def is_over(self) -> bool:
        """Whether the job is ending or has ended."""
        return self.stage in ("finishing", "ended")

    @property
    def is_ended(self) -> bool:
        return self.stage == "ended"

    def position(self) -> job_kinds.Position:
        """The job's progress, as it is recorded."""
        return job_kinds.position(self.state)

    def lacks_room(self) -> bool:
        """Whether the cluster lacks room for the job's minimum of members."""
        return job_kinds.lacks_room(self.state)

    # -- the status document
    def handed_over(self) -> dict[str, Any]:
        """What the next master reads in the newest status."""
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
        """The highest step ever made."""
        return int(self.status()["step"])

    def faults(self) -> list[Fault]:
        return [Fault(*(each[name] for name in Fault._fields)) for each in self.status()["faults"]]

    def member(self, member: str) -> dict[str, Any]:
        """The member's row, whether it is still present or not."""
        return next(each for each in self.status()["members"] if each["id"] == member)

    def members(self) -> list[str]:
        """The present members."""
        return [each["id"] for each in self.status()["members"] if each["state"] in LIVING_STATES]

    def holder_of(self, rank_index: int) -> str:
        rows = self.status()["members"]
        return next(e["id"] for e in rows if e["rank_index"] == rank_index and e["state"] in LIVING_STATES)

    def state_of(self, member: str) -> str:
        """The member's state in the document; empty if there never was such a member."""
        return next((each["state"] for each in self.status()["members"] if each["id"] == member), "")

    def scaling(self) -> dict[str, Any]:
        """The document's part on autoscaling."""
        return self.status()["scaling"]

    def has_settled(self) -> bool:
        """Whether autoscaling has chosen a size and has a time for its next evaluation."""
        return self.scaling()["next_evaluation"] is not None

    def lacks_room_to_grow(self) -> bool:
        """Whether autoscaling tried a larger size and has gone back for lack of room."""
        return self.scaling()["condition"] == "Stop"

    def is_checking(self) -> bool:
        """Whether members are in a node check."""
        return any(each["state"] == "checking" for each in self.status()["members"])

    # -- actions and Events
    def announced(self, kind: str) -> list[Announce]:
        return [each for each in self.actions.of(Announce) if each.kind == kind]

    def sent(self, kind: type, member: str | None = None) -> list[Send]:
        return [each for each in self.actions.of(kind) if member in (None, each.member)]

    def deleted(self) -> list[str]:
        return [each.member for each in self.actions.of(DeletePod)]

    def ended(self) -> EndJob | None:
        return next(iter(self.actions.of(EndJob)), None)

    @property
    def world(self) -> list[str]:
        """The members of the present generation in rank order."""
        return [str(each) for each in self.places()]

    # -- waiting
    def until_running(self, members: int | None = None, limit: float = 60.0) -> float:
        return self.until(lambda: self.is_running(members), limit)

    def until_next(self, members: int | None = None, limit: float = 60.0) -> float:
        """Runs until a generation after the present one runs; returns how long it took."""
        number = self.generation.number
        return self.until(lambda: self.is_running(members) and self.generation.number > number, limit)
