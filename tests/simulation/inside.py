"""What laws know of the cores' insides, read here alone: another shape of the states changes this module.

`MasterInside` and `SidecarInside` are parts of `Master` and `Sidecar`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from outrider.master.core import job_kinds
from outrider.master.core.hangs import limits as hangs_limits
from outrider.master.core.placement import admission as placement_admission
from outrider.master.core.ps.state import PsState, Task
from outrider.master.core.state.generation import Place
from outrider.master.core.state.job import ENDED, GATHERING, State
from outrider.master.core.state.member import ALIVE
from outrider.wire.ids import Generation, PodUid, RankIndex


class Known(NamedTuple):
    """A member, as its master knows it."""

    uid: PodUid | None
    rank_index: RankIndex | None
    is_alive: bool
    """And heard."""
    deleting: bool
    leaving: str


class TaskKnown(NamedTuple):
    """A rank index of a role in a PS job."""

    key: tuple[str, int]
    is_saved: bool
    """The world of its member."""
    removed: bool


class MasterInside:
    state: Any

    @property
    def is_ps(self) -> bool:
        return isinstance(self.state, PsState)

    @property
    def is_of_this_release(self) -> bool:
        """And no PS job."""
        return isinstance(self.state, State)

    def _part(self, name: str) -> Any:
        """The State of the release before, and that of a PS job, have the fields of their parts themselves."""
        return getattr(self.state, name) if self.is_of_this_release else self.state

    @property
    def is_ended(self) -> bool:
        return self.state.stage == ENDED

    @property
    def is_gathering(self) -> bool:
        return self.state.stage == GATHERING

    @property
    def is_over(self) -> bool:
        return bool(self.state.is_over)

    @property
    def ends(self) -> bool:
        """It is over, or its user wants that."""
        return bool(self.state.stop_wanted) or self.state.exit_code is not None

    def standing(self) -> str:
        """For a reader."""
        return f"{self.state.stage} {job_kinds.document(self.state, self.state.now)['message']!r}"

    def now(self) -> float:
        """When its last step was."""
        return float(self.state.now)

    # -- members
    def wanted(self) -> int:
        """How many it is to have."""
        return int(self.state.target)

    def member(self, member: str) -> Known | None:
        found = self.state.members.get(member)
        if found is None:
            return None
        return Known(found.uid, found.rank_index, found.life == ALIVE, found.deleting, found.leaving)

    def rank_index_before(self, member: str) -> RankIndex | None:
        """Of one that is no member any more."""
        found = self._part("placement").past.get(member)
        return None if found is None else found.rank_index

    def keeps_failed(self, member: str) -> bool:
        """Its pod has failed, and stays to be read."""
        return member in self._part("placement").failed_pods

    def restarts_used(self) -> int:
        return int(self._part("faults").restarts.used)

    # -- its world
    def generation(self) -> Generation | None:
        """Of the world, if there is one."""
        return None if self.state.world is None else self.state.world.generation

    def places(self) -> Mapping[str, Place]:
        return {} if self.state.world is None else self.state.world.places

    def world_size(self) -> int:
        """Ranks."""
        return 0 if self.state.world is None else self.state.world.world_size

    def kept_step(self) -> int:
        """The newest that the world has in memory."""
        return -1 if self.state.world is None else self.state.world.keeping.kept

    def copies_due(self) -> float | None:
        """When the world starts without the copies that it waits for, by the master's clock; 0: it waits for none.
        None: nobody has looked yet."""
        world = self.state.world
        return None if world is None or world.restoring is None else world.restoring.until

    def step_limits(self) -> list[float]:
        """Seconds without a step that are too long, in each phase: more where it was slow before."""
        pace = self._part("hangs").pace
        return [hangs_limits.limit(pace, self.state.spec, phase, self.state.now) for phase in hangs_limits.PHASES]

    def may_replace(self, member: str) -> bool:
        """For a link that is cut."""
        state, found = self.state, self.state.members.get(member)
        is_free = found is not None and found.rank_index is not None and found.rank_index not in state.parted
        is_enough = len(state.world.places) > state.spec.min_members or state.spec.max_relaunches is None
        return is_free and (is_enough or state.spec.is_adopted)

    # -- other jobs
    def waits_behind(self) -> str:
        return "" if self.is_ps else str(self._part("placement").waits_behind)

    def lacks_room(self) -> bool:
        return placement_admission.lacks_room(self.state)

    # -- a PS job
    def tasks(self) -> Iterator[TaskKnown]:
        return (_known(key, task) for key, task in self.state.tasks.items())

    def task_of(self, member: str) -> TaskKnown | None:
        return next((_known(key, task) for key, task in self.state.tasks.items() if member in task.state.members), None)

    def is_spare(self, member: str) -> bool:
        """It has a task, and no rank index there."""
        found = [task.state.members[member] for task in self.state.tasks.values() if member in task.state.members]
        return bool(found) and found[0].rank_index is None


def _known(key: tuple[str, int], task: Task) -> TaskKnown:
    world = task.state.world
    return TaskKnown(key, world is not None and task.state.status.saved_version >= world.version, task.removed)


class SidecarInside:
    state: Any

    @property
    def is_ending(self) -> bool:
        return self.state.ending is not None

    @property
    def generation(self) -> Generation:
        """The newest that it was told to start."""
        return self.state.generation
