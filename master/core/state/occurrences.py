"""What has happened in one room and concerns others, which it does not know.

A room notes it with `state.occur`; who follows it, and in which order, is one table: `handlers.occurrences.ON`.
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
    """Every member of the world has its Start."""


@dataclass(frozen=True, slots=True)
class GenerationAdopted:
    """The world that an earlier master has started runs on."""

    progress: Mapping[str, Any]
    """Of its watch, as that one had saved it."""


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    """The worker processes of one more member exist."""


@dataclass(frozen=True, slots=True)
class StepMade:
    """Training is beyond where it ever was."""

    step: int


@dataclass(frozen=True, slots=True)
class RankSaves:
    """A rank of this member has begun or finished a save."""

    member: MemberId
    generation: Generation


@dataclass(frozen=True, slots=True)
class CheckpointFinished:
    member: MemberId
    message: Saved


@dataclass(frozen=True, slots=True)
class RankDone:
    """A rank of the running world has ended with 0."""


@dataclass(frozen=True, slots=True)
class FaultNoted:
    """It speaks against this node; empty where it speaks against none."""

    node: str


@dataclass(frozen=True, slots=True)
class FailMember:
    """What is to become of a member is decided: it fails, and its container ends with this code."""

    member: MemberId
    reason: str
    code: int


@dataclass(frozen=True, slots=True)
class MemberAdded:
    """It was created, or an earlier master's pod was found."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class SpecEdited:
    before: JobSpec


@dataclass(frozen=True, slots=True)
class MembersCutOff:
    """Pairs of a running world that cannot see each other, and it is not known yet whether that stops it."""

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
