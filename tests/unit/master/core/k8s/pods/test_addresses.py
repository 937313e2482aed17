"""Which members are found by name."""

from __future__ import annotations

from outrider.master.core.k8s.pods import addresses
from outrider.master.core.k8s.values.names import Document


def job(adopts: bool = False, **replicas: int) -> Document:
    spec: Document = {"replicaSpecs": {role: {"replicas": count} for role, count in replicas.items()}}
    if adopts:
        spec["adopts"] = {"kind": "StatefulSet", "name": "train", "apiVersion": "apps/v1"}
    return {"metadata": {"name": "train", "namespace": "a", "uid": "u"}, "spec": spec}


def names(services: list[Document]) -> list[str]:
    return [service["metadata"]["name"] for service in services]


def test_workers_that_meet_where_their_generation_says_need_no_service() -> None:
    assert addresses.services_of(job(worker=4)) == []


def test_in_a_job_with_parameter_servers_each_rank_index_of_every_role_has_one() -> None:
    found = names(addresses.services_of(job(worker=2, ps=2, chief=1)))
    assert found == ["train-chief-0", "train-ps-0", "train-ps-1", "train-worker-0", "train-worker-1"]


def test_a_job_that_grows_needs_more() -> None:
    assert names(addresses.services_of(job(worker=3, ps=1)))[-1] == "train-worker-2"


def test_another_controllers_pods_have_the_addresses_that_it_gives_them() -> None:
    assert addresses.services_of(job(adopts=True, worker=2, ps=2)) == []


def test_a_service_has_an_ip_that_stays_selects_the_rank_index_and_goes_with_the_job() -> None:
    service = addresses.services_of(job(worker=1, ps=1))[0]
    assert "clusterIP" not in service["spec"]
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"]["outrider.dev/rank-index"] == "0"
    assert service["metadata"]["ownerReferences"][0]["uid"] == "u"
