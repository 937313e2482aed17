"""The Services of a job: one per rank index for members that need a stable address.

Workers of an all-reduce job meet at the address that each generation provides. Members of a job with parameter servers
need a name that outlives their pod. A master has the address that it would have in a PyTorchJob. Other controllers
provide the addresses of their pods themselves.
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
"""Port of a PyTorchJob's master. The ranks meet at another address, which each generation provides."""


def services_of(job: Document) -> list[Document]:
    """The Services that the job needs at its present size."""
    roles = roles_of(job)
    if not has_addresses(job):
        return []
    if has_master(job):
        return [service_of(job, MASTER, RankIndex(0))]
    return [service_of(job, Role(role), RankIndex(index)) for role in sorted(roles)
            for index in range(sizes(roles[role])[2])]  # fmt: skip


def has_addresses(job: Document) -> bool:
    """Whether members have Services: the job has parameter servers or a master, and creates its pods itself."""
    return (PS in roles_of(job) or has_master(job)) and not job["spec"].get("adopts")


def port_of(role: Role) -> int:
    """Port of the role's members in their Services."""
    return {PS: PS_PORT, MASTER: MASTER_PORT}.get(role, PORT)


def service_of(job: Document, role: Role, rank_index: RankIndex) -> Document:
    """The Service of one rank index, whichever pod has it.

    A replacement has the same address as the lost member, even for a client that has resolved the name before
    (docs/adr/0024). Kubernetes 1.20 would keep a failed pod in the Service, so each pod has a label `serves` until it
    fails.
    """
    labels = {JOB: job["metadata"]["name"], ROLE: str(role), RANK_INDEX: str(rank_index)}
    selector = labels | {SERVES: "true"}
    if role == MASTER:  # a worker that was a spare may have its rank index
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
