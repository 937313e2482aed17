"""The state machine of a member's phases.

`move` refuses transitions that are not in the table: an unforeseen one is a bug, and a bug ends the sidecar (training
continues; the next sidecar reattaches). `draw` prints the table as the diagram of docs/contracts.md §14.
"""

from __future__ import annotations

from outrider.sidecar.core.state import Phase, State

TABLE: dict[tuple[Phase, str], Phase] = {
    (Phase.WAITING, "trainer came"): Phase.READY,
    (Phase.WAITING, "workers found"): Phase.RUNNING,
    (Phase.WAITING, "trainer lost"): Phase.WAITING,
    (Phase.READY, "start ordered"): Phase.FORKING,
    (Phase.READY, "workers found"): Phase.RUNNING,
    (Phase.READY, "trainer lost"): Phase.WAITING,
    (Phase.FORKING, "started"): Phase.RUNNING,
    (Phase.FORKING, "not started"): Phase.READY,
    (Phase.FORKING, "stop ordered"): Phase.STOPPING,
    (Phase.FORKING, "trainer lost"): Phase.WAITING,
    (Phase.RUNNING, "all ended well"): Phase.DONE,
    (Phase.RUNNING, "stop ordered"): Phase.STOPPING,
    (Phase.RUNNING, "trainer lost"): Phase.WAITING,
    (Phase.STOPPING, "stopped"): Phase.READY,
    (Phase.STOPPING, "trainer lost"): Phase.WAITING,
    (Phase.DONE, "stop ordered"): Phase.STOPPING,
    (Phase.DONE, "trainer lost"): Phase.WAITING,
}


def move(state: State, cause: str) -> None:
    state.phase = TABLE[state.phase, cause]


def draw() -> str:
    """The table as a Mermaid diagram."""
    rows = [f"    {a.name.lower()} --> {b.name.lower()}: {cause}" for (a, cause), b in TABLE.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> waiting", *rows])
