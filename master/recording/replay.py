"""Steps the real core through a recording, and compares its decisions with those that were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from outrider.master.core import job_kinds
from outrider.master.core.actions import Action
from outrider.master.recording import codec
from outrider.master.recording.reading import Recording, Step
from outrider.master.recording.scrubbing import PLACEHOLDER, Scrubber


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one event did to the core of this version."""

    step: Step
    before: str
    after: str
    """The state in a few words, before and after."""
    actions: list[Action]
    failure: str = ""
    """Why the core failed at this event; empty if it did not."""
    recorded: list[Any] = field(default_factory=list)
    """The recorded actions, as JSON, if they differ; else empty."""
    differs: bool = False


def replayed(recording: Recording) -> Iterator[Replayed]:
    """Each step in turn. It changes the recording's state, and ends at an event at which the core fails: a recording
    that ends there too, without an action, is of a core that failed."""
    state, scrubber = recording.state, Scrubber()
    for step in recording.steps:
        before, failure, actions = job_kinds.describe(state), "", list[Action]()
        try:
            actions = job_kinds.step(state, step.event, step.at)
            job_kinds.check(state)
            job_kinds.next_deadline(state)
        except MemoryError:
            raise
        except Exception as error:  # a bug of the core, which the recording may be about
            failure = f"{type(error).__name__}: {error}"
        made = [codec.encoded(Action, each, scrubber) for each in actions]
        has_failed_then = not step.actions and step is recording.steps[-1]
        differs = not has_failed_then if failure else not _same(step.actions, made)
        yield Replayed(step, before, "" if failure else job_kinds.describe(state), actions, failure,
                       step.actions if differs else [], differs)  # fmt: skip
        if failure:
            return


def _same(recorded: Any, made: Any) -> bool:
    """Whether a value is the recorded one, as far as it was recorded: a placeholder stands for any text, because the
    core may have put the text together."""
    if isinstance(recorded, str) and isinstance(made, str):
        return recorded == made or any(PLACEHOLDER.search(each) for each in (recorded, made))
    if isinstance(recorded, list) and isinstance(made, list):
        return len(recorded) == len(made) and all(map(_same, recorded, made))
    if isinstance(recorded, dict) and isinstance(made, dict):
        return recorded.keys() == made.keys() and all(_same(recorded[key], made[key]) for key in recorded)
    return bool(recorded == made)
