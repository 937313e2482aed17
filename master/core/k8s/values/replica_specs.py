"""`spec.replicaSpecs` of an ElasticJob of any shape: its roles and their sizes.

Sizes that the user left out are derived from those that are set.
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
    """The replica specs by lower-case role; of two roles that differ only in case, the last one."""
    specs = mapping(mapping(job.get("spec")).get("replicaSpecs"))
    return {str(role).lower(): mapping(spec) for role, spec in specs.items()}


def pod_templates(job: Mapping[str, Any]) -> dict[str, Document]:
    """The pod template of each role."""
    return {role: mapping(spec.get("template")) for role, spec in roles_of(job).items()}


def sizes(role: Mapping[str, Any]) -> tuple[int, int, int]:
    """Minimum, maximum and desired number of members; missing ones are derived from the others."""
    least, most = whole(role.get("minReplicas")), whole(role.get("maxReplicas"))
    desired = whole(role.get("replicas"))
    if desired is None:
        desired = most if most is not None else least if least is not None else 1
    return desired if least is None else least, desired if most is None else most, desired


def has_master(job: Mapping[str, Any]) -> bool:
    """Whether the job has a role master, which then has rank index 0."""
    return MASTER in (roles := roles_of(job)) and "ps" not in roles


def members(job: Mapping[str, Any]) -> tuple[int, int, int]:
    """Minimum, maximum and desired number of members: the workers and, if the job has one, the master."""
    roles, masters = roles_of(job), int(has_master(job))
    workers = (0, 0, 0) if masters and WORKER not in roles else sizes(roles.get(WORKER, {}))
    least, most, desired = (masters + each for each in workers)
    return least, most, desired


def restart_policy_of(role: Document) -> str:
    """The role's restartPolicy; empty if the role has none."""
    policy = role.get("restartPolicy")
    return policy if policy in restart_policy.POLICIES else ""
