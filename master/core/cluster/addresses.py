"""Which members need an address of their own: a Service a rank index.

Workers of an all-reduce job meet at the address that each generation tells them. Members of a job with parameter
servers are found by a name that outlives their pod. Other controllers give their pods addresses themselves.
"""

from __future__ import annotations

from master.core.cluster.elasticjob import roles_of, sizes
from master.core.cluster.names import Document
from master.core.cluster.pods import service_of
from wire.ids import RankIndex, Role

PS = Role("ps")


def services_of(job: Document) -> list[Document]:
    """Those that the job needs at its present size."""
    roles = roles_of(job)
    if PS not in roles or job["spec"].get("adopts"):
        return []
    return [service_of(job, Role(role), RankIndex(index)) for role in sorted(roles)
            for index in range(sizes(roles[role])[2])]  # fmt: skip
