"""The job that a document belongs to and the member that a pod is, by namespace, name and labels."""

from __future__ import annotations

from outrider.master.core.k8s.values.names import JOB, MEMBER, Document
from outrider.wire.ids import JobName, MemberId


def key_of(job: Document) -> JobName:
    """The name of the job of this ElasticJob."""
    metadata = job["metadata"]
    return JobName(f"{metadata.get('namespace') or 'default'}/{metadata['name']}")


def job_of(pod: Document) -> JobName | None:
    """The job of this pod; None if the pod belongs to no job."""
    metadata = pod["metadata"]
    job = (metadata.get("labels") or {}).get(JOB)
    return JobName(f"{metadata.get('namespace') or 'default'}/{job}") if job else None


def name_of(job: Document, member: MemberId) -> str:
    """The name of a member's pod: `<job>-<role>-<id>`, or the member's id if the job adopts pods."""
    return str(member) if job["spec"].get("adopts") else f"{job['metadata']['name']}-{member}"


def member_of(pod: Document) -> MemberId | None:
    """The id of the member that this pod is; None if the pod belongs to no job."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    if not labels.get(JOB) or not metadata.get("name"):
        return None
    return MemberId(labels.get(MEMBER) or metadata["name"])
