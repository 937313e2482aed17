"""What has gone wrong in a job, and what speaks against nodes."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.durability import Moment, durable, transient
from outrider.master.core.state.generation import Fault, Incident
from outrider.wire.ids import RankIndex


@dataclass(slots=True)
class Exclusion:
    """Nodes that new pods keep off (`faults.node_exclusion`)."""

    avoiding: tuple[str, ...] = durable(())
    """Nodes that new pods keep off."""
    condemned: dict[str, Moment] = durable(dict)
    """Nodes of which a rule of the user's said so, and when."""
    forgiven_at: Moment = durable(float("-inf"))
    """What speaks against a node and is older does not count: there was no room without it."""


@dataclass(slots=True)
class Faults:
    """What has gone wrong, and what it has cost."""

    noted: list[Fault] = durable(list, "faults")
    counts: dict[str, int] = durable(dict, "fault_counts")
    """By kind, of all that there ever were."""
    incident: Incident | None = transient(None)
    same_error: tuple[str, int] = durable(("", 0))
    """The error of the last generations that made no step, and how many running."""
    port_clashes: int = durable(0)
    restarts: Budget = durable(Budget)
    memory: dict[RankIndex, int] = durable(dict)
    """Bytes that the container of a rank index needs, where its template's were too few."""

    def note_step(self, is_new: bool) -> None:
        """One was made: no port clashes, and where it is a new one, the error is none of the last ones."""
        self.port_clashes = 0
        if is_new:
            self.same_error = ("", 0)

    def excuse(self) -> None:
        """What has ended the generation is an effect of something else."""
        if self.incident is not None:
            self.incident.free = True
