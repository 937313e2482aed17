"""`spec.replicaSpecs` of an ElasticJob, which are taken as they come, in any shape: its roles, and their sizes.

Sizes that the user left out follow from those that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.master.core.faults import restart_policy
from outrider.master.core.k8s.values.fields import mapping, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.spec import MASTER, WORKER

ROLES = ("worker", "chief", "ps", "evaluator", "master")


def roles_of(job: Mapping[str, Any]) -> dict[str, Document]:
    """The replica specs by the lower-case name of their role; of two that differ in case only, the last."""
    specs = mapping(mapping(job.get("spec")).get("replicaSpecs"))
    return {str(role).lower(): mapping(spec) for role, spec in specs.items()}


def pod_templates(job: Mapping[str, Any]) -> dict[str, Document]:
    """By role, what its pods are made from."""
    return {role: mapping(spec.get("template")) for role, spec in roles_of(job).items()}


def sizes(role: Mapping[str, Any]) -> tuple[int, int, int]:
    """Least, most and wanted members: what is left out follows from what is there."""
    least, most = whole(role.get("minReplicas")), whole(role.get("maxReplicas"))
    wanted = whole(role.get("replicas"))
    if wanted is None:
        wanted = most if most is not None else least if least is not None else 1
    return wanted if least is None else least, wanted if most is None else most, wanted


def has_master(job: Mapping[str, Any]) -> bool:
    """Rank index 0 is the role master's."""
    return MASTER in (roles := roles_of(job)) and "ps" not in roles


def members(job: Mapping[str, Any]) -> tuple[int, int, int]:
    """Least, most and wanted members of its one world: the workers, and the master where there is one."""
    roles, masters = roles_of(job), int(has_master(job))
    workers = (0, 0, 0) if masters and WORKER not in roles else sizes(roles.get(WORKER, {}))
    least, most, wanted = (masters + each for each in workers)
    return least, most, wanted


def restart_policy_of(role: Document) -> str:
    """Empty where it has none of its own."""
    policy = role.get("restartPolicy")
    return policy if policy in restart_policy.POLICIES else ""
