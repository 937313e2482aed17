"""Which replica is the master, and with which term. A Lease as it was read gives what is to be written.

Nobody's clock matters but one's own: who waits measures how long the document has stayed the same, whatever times stand
in it. The term is one more than the number of times that the Lease has changed hands, so each holder's is higher than
that of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.k8s.values.names import Document

DURATION = 15.0
"""Seconds without a renewal after which another one may take the Lease; this and `HELD` are those of client-go."""
HELD = 10.0
"""Seconds for which the holder counts on a renewal: the rest is for clocks that run at different speeds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What is to be written to hold the Lease, and the term that comes with it."""

    document: Document
    term: int


def decide(lease: Document | None, name: str, namespace: str, me: str, unchanged: float, now: str) -> Claim | None:
    """None where another one holds it. `unchanged`: seconds for which this document has been seen as it is."""
    spec = (lease or {}).get("spec") or {}
    holder, transitions = spec.get("holderIdentity") or "", int(spec.get("leaseTransitions") or 0)
    patience = float(spec.get("leaseDurationSeconds") or DURATION)
    if holder and holder != me and unchanged < patience:
        return None
    if holder != me and lease is not None:
        transitions += 1
    acquired = spec.get("acquireTime") if holder == me else now
    document: Document = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "holderIdentity": me,
            "leaseDurationSeconds": int(DURATION),
            "leaseTransitions": transitions,
            "acquireTime": acquired or now,
            "renewTime": now,
        },
    }
    if lease is not None:
        document["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
    return Claim(document, transitions + 1)
