"""Names of things, as distinct types, so that a member is never passed where a job is meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

JobName = NewType("JobName", str)
MemberId = NewType("MemberId", str)
"""`<role>-<id>`, as `worker-4`. Ids only grow: a replacement has a new one."""
Role = NewType("Role", str)
"""Lower case: worker, chief, ps, evaluator, master."""
RankIndex = NewType("RankIndex", int)
"""A member's stable place in its role, from 0; a replacement inherits it, a spare has none."""
PodUid = NewType("PodUid", str)
"""Which incarnation of a member: the pod's UID in a cluster, a random hex string locally."""
OrderId = NewType("OrderId", int)
"""Numbers the master's orders within its term; a sidecar acknowledges an order by it."""
NO_ORDER = OrderId(0)


@dataclass(frozen=True, slots=True, order=True)
class Generation:
    """One agreed world, compared term first: a paused old master has a lower term and can never give orders.

    `term` comes from the Lease in a cluster and from a counter in the job's folder locally; `number` grows by one with
    every world of the job, over all terms, from 1.
    """

    term: int
    number: int

    def __str__(self) -> str:
        return f"{self.term}.{self.number}"


NO_GENERATION = Generation(0, 0)
"""Lower than any that exists: nothing has been started yet."""
