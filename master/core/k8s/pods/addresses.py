"""Which members need an address of their own: a Service a rank index.

Workers of an all-reduce job meet at the address that each generation tells them. Members of a job with parameter
servers are found by a name that outlives their pod. A master has the address that it would have in a PyTorchJob.
Other controllers give their pods addresses themselves.
"""

from __future__ import annotations

from outrider.master.core.k8s.owners.references import owned_by
from outrider.master.core.k8s.values.identity import key_of
from outrider.master.core.k8s.values.names import JOB, RANK_INDEX, ROLE, SERVES, Document
from outrider.master.core.k8s.values.replica_specs import has_master, roles_of, sizes
from outrider.master.core.spec import MASTER
from outrider.wire.ids import RankIndex, Role

PS, PS_PORT = "ps", 2222
PORT = 3333
MASTER_PORT = 23456
"""Of a PyTorchJob's master. The ranks meet elsewhere, at an address of each generation's."""


def services_of(job: Document) -> list[Document]:
    """Those that the job needs at its present size."""
    roles = roles_of(job)
    if not has_addresses(job):
        return []
    if has_master(job):
        return [service_of(job, MASTER, RankIndex(0))]
    return [service_of(job, Role(role), RankIndex(index)) for role in sorted(roles)
            for index in range(sizes(roles[role])[2])]  # fmt: skip


def has_addresses(job: Document) -> bool:
    """Members are reached at Services: it has parameter servers, or a master."""
    return (PS in roles_of(job) or has_master(job)) and not job["spec"].get("adopts")


def port_of(role: Role) -> int:
    """On which its members are reached, where they have an address."""
    return {PS: PS_PORT, MASTER: MASTER_PORT}.get(role, PORT)


def service_of(job: Document, role: Role, rank_index: RankIndex) -> Document:
    """One address for a rank index, whichever pod holds it: a replacement is reached where the lost one was, also by
    who has looked the name up before (docs/adr/0024). Kubernetes 1.20 would leave one there that has failed and is
    kept, so that each pod says by a label that it serves, until it has failed."""
    labels = {JOB: job["metadata"]["name"], ROLE: str(role), RANK_INDEX: str(rank_index)}
    selector = labels | {SERVES: "true"}
    if role == MASTER:  # a worker that was a spare may hold its rank index
        del selector[ROLE]
    port = port_of(role)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"{job['metadata']['name']}-{role}-{rank_index}",
            "namespace": key_of(job).partition("/")[0],
            "labels": labels,
            "ownerReferences": [owned_by(job)],
        },
        "spec": {
            "publishNotReadyAddresses": True,
            "selector": selector,
            "ports": [{"name": str(role), "port": port, "targetPort": port}],
        },
    }
