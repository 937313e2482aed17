"""Ids as distinct types, so that the id of a member is never passed for that of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

JobName = NewType("JobName", str)
MemberId = NewType("MemberId", str)
"""The id of a member: `<role>-<number>`, as `worker-4`. Numbers only grow, so a replacement has a new one."""
Role = NewType("Role", str)
"""The role of a member in lower case: worker, chief, ps, evaluator, master."""
RankIndex = NewType("RankIndex", int)
"""A member's stable position in its role, from 0; a replacement inherits it, a spare has none."""
PodUid = NewType("PodUid", str)
"""The incarnation of a member: the pod's UID in a cluster, a random hex string locally."""
OrderId = NewType("OrderId", int)
"""The number of an order within the master's term, by which a sidecar acknowledges it."""
NO_ORDER = OrderId(0)


@dataclass(frozen=True, slots=True, order=True)
class Generation:
    """One agreed set of members, compared by term first: a paused old master has a lower term, so no sidecar obeys it.

    `term` comes from the Lease in a cluster and from a counter in the job's folder locally; `number` grows by one with
    each generation of the job, across all terms, from 1.
    """

    term: int
    number: int

    def __str__(self) -> str:
        return f"{self.term}.{self.number}"


NO_GENERATION = Generation(0, 0)
"""Lower than any real generation: nothing has been started yet."""
