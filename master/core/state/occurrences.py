"""Occurrences: what happened in one domain and concerns other domains that it does not import.

A domain notes one with `state.occur`; the handlers and their order are in one table, `handlers.occurrences.ON`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.master.core.spec import JobSpec
from outrider.master.core.state.links import Cut
from outrider.wire.ids import Generation, MemberId
from outrider.wire.messages.checkpoints import Saved


@dataclass(frozen=True, slots=True)
class GenerationStarted:
    """Start was sent to every member of the generation."""


@dataclass(frozen=True, slots=True)
class GenerationAdopted:
    """This master has adopted the generation that an earlier one started."""

    progress: Mapping[str, Any]
    """The watch of its progress, as the earlier master saved it."""


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    """The worker processes of one more member exist."""


@dataclass(frozen=True, slots=True)
class StepMade:
    """Training has passed the highest step so far."""

    step: int


@dataclass(frozen=True, slots=True)
class RankSaves:
    """A rank of this member has started or finished a save."""

    member: MemberId
    generation: Generation


@dataclass(frozen=True, slots=True)
class CheckpointFinished:
    member: MemberId
    message: Saved


@dataclass(frozen=True, slots=True)
class RankDone:
    """A rank of the running generation has ended with 0."""


@dataclass(frozen=True, slots=True)
class FaultNoted:
    """A fault was noted; `node` is the suspect node, empty if there is none."""

    node: str


@dataclass(frozen=True, slots=True)
class FailMember:
    """It was decided that a member fails and that its container ends with this code."""

    member: MemberId
    reason: str
    code: int


@dataclass(frozen=True, slots=True)
class MemberAdded:
    """A member was created, or a pod of an earlier master was found."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class SpecEdited:
    before: JobSpec


@dataclass(frozen=True, slots=True)
class MembersCutOff:
    """Pairs of members of a running generation cannot reach each other; it may or may not stop training."""

    pairs: tuple[Cut, ...]


Occurrence = (
    GenerationStarted
    | GenerationAdopted
    | WorkersStarted
    | StepMade
    | RankSaves
    | CheckpointFinished
    | RankDone
    | FaultNoted
    | FailMember
    | MemberAdded
    | SpecEdited
    | MembersCutOff
)
