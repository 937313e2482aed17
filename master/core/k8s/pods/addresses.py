"""Which members need an address of their own: a Service a rank index.

Workers of an all-reduce job meet at the address that each generation tells them. Members of a job with parameter
servers are found by a name that outlives their pod. A master has the address that it would have in a PyTorchJob.
Other controllers give their pods addresses themselves.
"""

from __future__ import annotations

from outrider.master.core.k8s.pods.build import has_addresses, service_of
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.replica_specs import has_master, roles_of, sizes
from outrider.master.core.spec import MASTER
from outrider.wire.ids import RankIndex, Role


def services_of(job: Document) -> list[Document]:
    """Those that the job needs at its present size."""
    roles = roles_of(job)
    if not has_addresses(job):
        return []
    if has_master(job):
        return [service_of(job, MASTER, RankIndex(0))]
    return [service_of(job, Role(role), RankIndex(index)) for role in sorted(roles)
            for index in range(sizes(roles[role])[2])]  # fmt: skip
