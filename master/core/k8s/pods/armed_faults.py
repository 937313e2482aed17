"""Faults that an ElasticJob's annotation arms in its pods, and the permissions that they need."""

from __future__ import annotations

from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values import chaos
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import CHAOS, Document
from outrider.master.core.k8s.values.replica_specs import has_master
from outrider.master.core.spec import WORKER
from outrider.wire.ids import MemberId


def may_break_its_network(pod: Document) -> bool:
    """Whether the pod's trainer may break its network: as root with NET_ADMIN, in its own network namespace."""
    spec = mapping(pod.get("spec"))
    those = [mapping(container) for container in entries(spec.get("containers"))]
    trainer = trainer_name({"metadata": mapping(pod.get("metadata")), "spec": {"containers": those}})
    own: Document = next((each for each in those if each.get("name") == trainer), {})
    rights, of_pod = mapping(own.get("securityContext")), mapping(spec.get("securityContext"))
    added = {
        str(right).upper().removeprefix("CAP_") for right in entries(mapping(rights.get("capabilities")).get("add"))
    }
    is_root = rights.get("runAsUser", of_pod.get("runAsUser")) in (None, 0)
    has_right = rights.get("privileged") is True or added & {"NET_ADMIN", "ALL"}
    return bool(has_right and is_root and not spec.get("hostNetwork"))


def _first_index(job: Document, member: MemberId) -> int:
    """The rank index that the first member with this id has; negative for a replacement of a master.

    If the job has a master, worker-0 has rank index 1.
    """
    role, _dash, number = member.rpartition("-")
    if not has_master(job):
        return int(number)
    return int(number) + 1 if role == WORKER else -int(number)


def with_armed(pod: Document, job: Document, member: MemberId) -> Document:
    """The pod with the armed faults of this member in its trainer's variables.

    Only the first member of a rank index has an id with this number, so a replacement gets no fault.
    """
    faults = chaos.of_member(_armed_of(job), _first_index(job, member))
    trainer = trainer_name(pod)
    for container in pod["spec"]["containers"]:
        if faults and container.get("name") == trainer:
            container["env"] = [*container.get("env", ()), {"name": chaos.VARIABLE, "value": faults}]
    return pod


def _armed_of(job: Document) -> tuple[chaos.Armed, ...]:
    """The armed faults of a job; none if the annotation is invalid, which `validation` reports."""
    try:
        return chaos.all_armed(str(mapping(job["metadata"].get("annotations")).get(CHAOS) or ""))
    except ValueError:
        return ()
