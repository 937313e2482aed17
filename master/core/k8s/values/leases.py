"""Leader election: from a Lease as it was read, what a replica writes to become or stay the master.

Only a replica's own clock counts: a waiting replica measures how long the Lease has not changed and ignores the times
in it. The term is one more than the number of holder changes, so each holder's term is higher than its predecessor's.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.k8s.values.names import Document

DURATION = 15.0
"""Seconds without a renewal after which another replica may take the Lease. This and `HELD` are client-go's values."""
HELD = 10.0
"""Seconds for which the holder relies on a renewal; the rest allows for clocks that run at different speeds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The document that a replica writes to hold the Lease, and the term that comes with it."""

    document: Document
    term: int


def decide(lease: Document | None, name: str, namespace: str, me: str, unchanged: float, now: str) -> Claim | None:
    """The claim to write; None if another replica holds the Lease. `unchanged`: seconds since the Lease changed."""
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
