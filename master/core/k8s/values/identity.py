"""Of which job a document is, and of which member of it a pod: by namespace, name and labels."""

from __future__ import annotations

from outrider.master.core.k8s.values.names import JOB, MEMBER, Document
from outrider.wire.ids import JobName, MemberId


def key_of(job: Document) -> JobName:
    """`job`: its ElasticJob."""
    metadata = job["metadata"]
    return JobName(f"{metadata.get('namespace') or 'default'}/{metadata['name']}")


def job_of(pod: Document) -> JobName | None:
    """None for a pod of no job."""
    metadata = pod["metadata"]
    job = (metadata.get("labels") or {}).get(JOB)
    return JobName(f"{metadata.get('namespace') or 'default'}/{job}") if job else None


def name_of(job: Document, member: MemberId) -> str:
    """`<job>-<role>-<id>`; of a job that adopts, a member has its pod's own name."""
    return str(member) if job["spec"].get("adopts") else f"{job['metadata']['name']}-{member}"


def member_of(pod: Document) -> MemberId | None:
    """None for a pod of no job."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    if not labels.get(JOB) or not metadata.get("name"):
        return None
    return MemberId(labels.get(MEMBER) or metadata["name"])
