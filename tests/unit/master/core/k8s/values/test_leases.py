"""Leader election: the holder of the Lease and its term."""

from __future__ import annotations

from outrider.master.core.k8s.values.leases import DURATION, HELD, Claim, decide
from outrider.master.core.k8s.values.names import Document

NOW = "2026-01-01T00:00:00.000000Z"


def lease(holder: str, transitions: int = 0, version: str = "7") -> Document:
    spec = {
        "holderIdentity": holder,
        "leaseTransitions": transitions,
        "leaseDurationSeconds": 15,
        "acquireTime": "then",
    }
    return {"metadata": {"name": "m", "namespace": "ns", "resourceVersion": version}, "spec": spec}


def claimed(found: Document | None, unchanged: float = 0.0) -> Claim | None:
    return decide(found, "m", "ns", "me", unchanged, NOW)


def test_a_lease_that_is_not_there_is_made_with_the_first_term() -> None:
    claim = claimed(None)
    assert claim is not None
    assert claim.term == 1
    assert "resourceVersion" not in claim.document["metadata"]


def test_a_lease_of_another_is_left_alone_while_it_changes() -> None:
    assert claimed(lease("other"), unchanged=14.9) is None


def test_a_lease_that_has_not_changed_for_its_duration_is_taken_with_the_next_term() -> None:
    claim = claimed(lease("other", transitions=3), unchanged=15.0)
    assert claim is not None
    assert claim.term == 5
    assert claim.document["spec"]["leaseTransitions"] == 4
    assert claim.document["spec"]["acquireTime"] == NOW
    assert claim.document["metadata"]["resourceVersion"] == "7"


def test_a_lease_that_was_given_back_is_taken_at_once_with_a_new_term() -> None:
    claim = claimed(lease("", transitions=3))
    assert claim is not None
    assert claim.term == 5


def test_an_older_holders_lease_is_taken_when_the_time_that_it_says_is_over() -> None:
    older = lease("other")
    older["spec"]["leaseDurationSeconds"] = 6
    assert claimed(older, unchanged=5.9) is None
    assert claimed(older, unchanged=6.0) is not None


def test_a_holder_stops_well_before_another_one_may_begin() -> None:
    claim = claimed(None)
    assert claim is not None
    assert claim.document["spec"]["leaseDurationSeconds"] == DURATION
    assert HELD <= DURATION - 5.0


def test_a_renewal_keeps_the_term() -> None:
    claim = claimed(lease("me", transitions=3))
    assert claim is not None
    assert (claim.term, claim.document["spec"]["acquireTime"], claim.document["spec"]["renewTime"]) == (4, "then", NOW)
