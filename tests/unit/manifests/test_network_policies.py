"""Who reaches whom where a cluster enforces NetworkPolicies: ours, read by an evaluator of their rules. The clusters of
these tests enforce none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from outrider.cli.doctor.network_policies import Outside, Pod, allows
from outrider.master.core.k8s.values.names import Document
from tests.unit.manifests.test_manifests import BASE, NAMESPACE, PODS, PORTS, the

OURS = [each for each in BASE if each["kind"] == "NetworkPolicy"]
EXAMPLE = [
    {**each, "metadata": {**each["metadata"], "namespace": "team-a"}}
    for each in yaml.safe_load_all(
        (Path(__file__).resolve().parents[3] / "examples" / "network" / "policies.yaml").read_text()
    )
]
ALL: list[Document] = [*OURS, *EXAMPLE]
HOME = the("Namespace")["metadata"]["labels"]
MASTER, WEBHOOK = (
    Pod(NAMESPACE, PODS[part]["metadata"]["labels"], HOME, PORTS[part]) for part in ("master", "webhook")
)
MEMBER = Pod("team-a", {"outrider.dev/job": "train", "outrider.dev/role": "worker"})
NEIGHBOUR = Pod("team-a", {"app": "notebook"})
OTHER_TEAM = Pod("team-b", {"outrider.dev/job": "theirs"})
STRANGER = Pod("team-c", {"app": "web"})
MONITORING = Pod("monitoring", {}, {"kubernetes.io/metadata.name": "monitoring"})
SCRAPER = Pod("prometheus", {}, {"outrider.dev/scrapes": "true"})
API_SERVER = Outside("172.16.0.2")


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        (MEMBER, MASTER, 7070, True),
        (OTHER_TEAM, MASTER, 7070, True),
        (MASTER, MASTER, 7070, True),
        (STRANGER, MASTER, 7070, False),
        (API_SERVER, MASTER, 7070, False),
        (MONITORING, MASTER, 7070, False),
        (MONITORING, MASTER, 8080, True),
        (SCRAPER, MASTER, 8080, True),
        (MEMBER, MASTER, 8080, False),
        (STRANGER, MASTER, 8080, False),
        (API_SERVER, WEBHOOK, 8443, True),
        (MEMBER, WEBHOOK, 8080, False),
        (MONITORING, WEBHOOK, 8080, False),
        (API_SERVER, MASTER, 8443, False),
        (WEBHOOK, MASTER, 7070, False),
        (WEBHOOK, MASTER, 8080, False),
        (MASTER, WEBHOOK, 8080, False),
    ],
)  # fmt: skip
def test_our_own_pods_are_reached_by_those_whom_they_serve(
    source: Pod | Outside, target: Pod, port: int, allowed: bool
) -> None:
    assert allows(OURS, source, target, port, "TCP") == allowed
    assert not allows(OURS, source, target, port, "UDP")


def test_members_reach_each_other_and_their_master_and_nobody_else_reaches_them() -> None:
    for port, protocol in ((40123, "TCP"), (40123, "UDP"), (2222, "TCP")):
        assert allows(ALL, MEMBER, MEMBER, port, protocol)
        for other in (NEIGHBOUR, OTHER_TEAM, STRANGER, WEBHOOK, API_SERVER):
            assert not allows(ALL, other, MEMBER, port, protocol)
        assert not allows(ALL, MEMBER, NEIGHBOUR, port, protocol)
    assert allows(ALL, MEMBER, MASTER, 7070, "TCP")
    assert allows(ALL, MEMBER, Outside("10.96.0.10"), 53, "UDP")
    assert not allows(ALL, MEMBER, Outside("10.96.0.1"), 443, "TCP")


def test_pods_that_no_policy_selects_are_as_they_were() -> None:
    assert allows(ALL, STRANGER, NEIGHBOUR, 80, "TCP")
    assert allows(OURS, STRANGER, MEMBER, 40123, "TCP")


def test_every_port_of_ours_is_somebodys() -> None:
    """A port that a pod opens and no rule names would be closed to all."""
    for policy in OURS:
        part = policy["spec"]["podSelector"]["matchLabels"]["outrider.dev/part"]
        named = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert named == set(PORTS[part]) - ({"http"} if part == "webhook" else set())


# -- the evaluator --------------------------------------------------------------------------------------------------
def policy(**spec: object) -> Document:
    return {"metadata": {"namespace": "team-a"}, "spec": {"podSelector": {}, **spec}}


@pytest.mark.parametrize(
    ("spec", "source", "allowed"),
    [
        ({"ingress": []}, NEIGHBOUR, False),
        ({"ingress": [{}]}, STRANGER, True),
        ({"policyTypes": ["Egress"]}, STRANGER, True),
        ({"ingress": [{"from": [{"podSelector": {}}]}]}, NEIGHBOUR, True),
        ({"ingress": [{"from": [{"podSelector": {}}]}]}, STRANGER, False),
        ({"ingress": [{"from": [{"namespaceSelector": {}}]}]}, STRANGER, True),
        ({"ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "x"}}}]}]},
         STRANGER, False),
        ({"ingress": [{"from": [{"ipBlock": {"cidr": "172.16.0.0/16"}}]}]}, API_SERVER, True),
        ({"ingress": [{"from": [{"ipBlock": {"cidr": "172.16.0.0/16", "except": ["172.16.0.0/24"]}}]}]},
         API_SERVER, False),
        ({"ingress": [{"ports": [{"port": 79, "endPort": 81}]}]}, STRANGER, True),
        ({"ingress": [{"ports": [{"port": 81, "endPort": 90}]}]}, STRANGER, False),
        ({"ingress": [{"ports": [{"port": "web"}]}]}, STRANGER, False),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, "ingress": []},
         STRANGER, False),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, "ingress": []},
         STRANGER, False),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}, "ingress": []},
         STRANGER, True),
    ],
)  # fmt: skip
def test_the_rules_are_read_as_kubernetes_documents_them(spec: Document, source: Pod | Outside, allowed: bool) -> None:
    assert allows([policy(**spec)], source, MEMBER, 80, "TCP") == allowed
