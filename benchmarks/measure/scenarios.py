"""The faults that recovery is measured for, and what one measured fault says."""

from __future__ import annotations

from dataclasses import dataclass, field

NODES = 4


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault and the circumstances it meets."""

    name: str
    title: str
    fault: str
    """crash, hang (one process stopped), lose or freeze."""
    world: int = NODES
    """The size of the world that has to follow."""
    minimum: int | None = None
    spares: int = 0
    limit: float = 30.0
    """Seconds after which Outrider has failed."""
    is_long: bool = False
    """Measured only where it is asked for."""

    @property
    def wants_replacement(self) -> bool:
        """A new member is due and none waits for it."""
        return self.fault in ("lose", "freeze") and self.world == NODES and not self.spares


SCENARIOS = {
    s.name: s
    for s in (
        Scenario("crash", "one process killed", "crash"),
        Scenario("lost", "member lost, replaced from nothing", "lose"),
        Scenario("lost-spare", "member lost, a spare waits", "lose", spares=1),
        Scenario("shrink", "member lost, not replaced", "lose", world=NODES - 1, minimum=NODES - 1),
        Scenario("frozen", "member frozen, replaced from nothing", "freeze"),
        Scenario("frozen-spare", "member frozen, a spare waits", "freeze", spares=1),
        Scenario("hang", "one process stopped (SIGSTOP)", "hang", limit=90.0, is_long=True),
        Scenario("frozen-shrink", "member frozen, not replaced", "freeze", world=NODES - 1, minimum=NODES - 1),
    )
}


@dataclass(slots=True)
class Repeat:
    """One fault in one fresh job."""

    launcher: str
    scenario: str
    start: float | None = None
    """Command to the first step of every rank."""
    recovery: float | None = None
    """Fault to the first step of every rank of the new world; None: not within the limit."""
    beyond: float | None = None
    """Fault to the first step on every rank that had not been made before it."""
    load: float = 0.0
    """Of the machine, just before the fault."""
    wrong: list[str] = field(default_factory=list)
    """What was not as it has to be; a recovery beside it does not count as a good one."""
