"""A cluster that has never seen Outrider: what its masters need and nobody has made, they make."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import SYSTEM, kubectl, rolled_out, until
from tests.cluster.conftest import Make
from tests.cluster.reading import listed

SECRETS = ("outrider-webhook-tls", "outrider-master-curve", "outrider-tickets")
MASTERS = "outrider.dev/part=master"


def scale(replicas: int) -> None:
    kubectl("-n", SYSTEM, "scale", "deployment", "outrider-master", f"--replicas={replicas}")


@pytest.mark.ends_masters
def test_keys_certificate_and_lease_are_made_where_there_are_none(make: Make) -> None:
    until(lambda: not listed("elasticjobs"), lambda: f"jobs of earlier terms are left: {listed('elasticjobs')}")
    scale(0)
    until(lambda: not listed("pods", SYSTEM, MASTERS), "the masters to go")
    kubectl("-n", SYSTEM, "delete", "secret", *SECRETS)
    kubectl("-n", SYSTEM, "delete", "lease", "outrider-master")
    scale(2)
    rolled_out("outrider-master")
    job = make()
    job.training(4)
    made = {secret["metadata"]["name"] for secret in listed("secrets", SYSTEM)}
    assert made >= set(SECRETS)
