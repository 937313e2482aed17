"""Which members need an address of their own: a headless Service a rank index.

Workers of an all-reduce job meet at the address that each generation tells them. Parameter servers, and roles that
others look for by name, must be found by a name that outlives their pod. So every role but the workers has Services,
and in a job with parameter servers the workers too. Other controllers give their pods addresses themselves.
"""

from __future__ import annotations

from collections.abc import Collection

from master.core.cluster.elasticjob import roles_of, sizes
from master.core.cluster.names import Document
from master.core.cluster.pods import service_of
from master.core.spec import WORKER
from wire.ids import RankIndex, Role

PS = Role("ps")


def services_of(job: Document, made: Collection[Role]) -> list[Document]:
    """Those that the job needs at its present size. `made`: the roles whose pods there are; an address that nobody will
    ever have is none."""
    if job["spec"].get("adopts"):
        return []
    roles = roles_of(job)
    named = [role for role in sorted(roles) if role in made and (role != WORKER or PS in roles)]
    return [service_of(job, Role(role), RankIndex(index)) for role in named for index in range(sizes(roles[role])[2])]
