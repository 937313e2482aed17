"""The faults of a job, and the nodes that are excluded for them."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.durability import Moment, durable, transient
from outrider.master.core.state.generation import Fault, Incident
from outrider.wire.ids import RankIndex


@dataclass(slots=True)
class Exclusion:
    """The excluded nodes, which new pods avoid (`faults.node_exclusion`)."""

    avoiding: tuple[str, ...] = durable(())
    """The nodes that new pods avoid now."""
    condemned: dict[str, Moment] = durable(dict)
    """The nodes that a user's rule has excluded, and when."""
    forgiven_at: Moment = durable(float("-inf"))
    """The moment before which evidence against nodes does not count, because no other nodes had room."""


@dataclass(slots=True)
class Faults:
    """The faults of a job and their costs."""

    noted: list[Fault] = durable(list, "faults")
    counts: dict[str, int] = durable(dict, "fault_counts")
    """The number of all faults so far, by kind."""
    incident: Incident | None = transient(None)
    same_error: tuple[str, int] = durable(("", 0))
    """The error of the latest generations without a step, and the number of consecutive ones with it."""
    port_clashes: int = durable(0)
    restarts: Budget = durable(Budget)
    memory: dict[RankIndex, int] = durable(dict)
    """The memory limit in bytes that a rank index needs, if that of its template was too low."""

    def note_step(self, is_new: bool) -> None:
        """Notes a step: the port conflict is over, and after a new step so is a repeated error."""
        self.port_clashes = 0
        if is_new:
            self.same_error = ("", 0)

    def excuse(self) -> None:
        """Makes the incident free of charge, because the generation ended as an effect of something else."""
        if self.incident is not None:
            self.incident.free = True
