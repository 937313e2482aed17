"""What NetworkPolicies allow in a cluster whose network enforces them: objects in, a connection allowed or not. Pure.

https://kubernetes.io/docs/concepts/services-networking/network-policies/: a pod that no policy of a direction selects
takes everything of it; one that some select, what any rule of these allows.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.master.core.k8s.values.names import Document


@dataclass(frozen=True)
class Pod:
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """Port numbers by name."""


@dataclass(frozen=True)
class Outside:
    """Not a pod: a node, an API server."""

    address: str


def allows(
    policies: Sequence[Document], source: Pod | Outside, target: Pod | Outside, port: int, protocol: str
) -> bool:
    """Whether the policies of both namespaces let `source` open a connection to this port of `target`."""
    return all(
        _allows(policies, pod, other, direction, port, protocol)
        for pod, other, direction in ((target, source, "Ingress"), (source, target, "Egress"))
        if isinstance(pod, Pod)
    )


def _allows(
    policies: Sequence[Document], pod: Pod, other: Pod | Outside, direction: str, port: int, protocol: str
) -> bool:
    ours = [each["spec"] for each in policies if _concerns(each, pod) and direction in _types(each["spec"])]
    peers = "from" if direction == "Ingress" else "to"
    listening = pod if direction == "Ingress" else other
    rules = [rule for spec in ours for rule in spec.get(direction.lower()) or ()]
    return not ours or any(
        (not rule.get(peers) or any(_is_peer(peer, other, pod.namespace) for peer in rule[peers]))
        and (not rule.get("ports") or any(_is_port(each, listening, port, protocol) for each in rule["ports"]))
        for rule in rules
    )


def _types(spec: Document) -> Sequence[str]:
    return spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]


def _concerns(policy: Document, pod: Pod) -> bool:
    return policy["metadata"].get("namespace") == pod.namespace and matches(
        policy["spec"].get("podSelector") or {}, pod.labels
    )


def _is_peer(peer: Document, other: Pod | Outside, home: str) -> bool:
    if "ipBlock" in peer:
        block, address = peer["ipBlock"], getattr(other, "address", None)
        inside = [ipaddress.ip_network(cidr) for cidr in block.get("except", ())]
        found = ipaddress.ip_address(address) if address else None
        return (
            found is not None and found in ipaddress.ip_network(block["cidr"]) and not any(found in x for x in inside)
        )
    if not isinstance(other, Pod):
        return False
    in_namespace = (
        matches(peer["namespaceSelector"] or {}, other.namespace_labels)
        if "namespaceSelector" in peer
        else other.namespace == home
    )
    return in_namespace and matches(peer.get("podSelector") or {}, other.labels)


def _is_port(rule: Document, listening: Pod | Outside, port: int, protocol: str) -> bool:
    named = rule.get("port")
    first = getattr(listening, "ports", {}).get(named) if isinstance(named, str) else named
    is_port = named is None or (first is not None and first <= port <= rule.get("endPort", first))
    return is_port and rule.get("protocol", "TCP") == protocol


def matches(selector: Document, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects these labels; an empty one selects everything."""
    exact = (selector.get("matchLabels") or {}).items() <= dict(labels).items()
    return exact and all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(claim: Document, labels: Mapping[str, str]) -> bool:
    key = str(claim.get("key"))
    is_there, value = key in labels, labels.get(key)
    match claim.get("operator"):
        case "Exists":
            return is_there
        case "DoesNotExist":
            return not is_there
        case "In":
            return is_there and value in (claim.get("values") or ())
        case "NotIn":
            return not is_there or value not in (claim.get("values") or ())
    return False
