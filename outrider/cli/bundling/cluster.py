"""The members of the bundle of a job in a cluster."""

from __future__ import annotations

from outrider.cli.bundling import archive, documents, local
from outrider.cli.bundling.local import Contents
from outrider.cli.kube import recording
from outrider.master.recording import recorder


def contents(job: str, namespace: str | None, system: str, account: str | None) -> Contents:
    """The ElasticJob, which has the status, and the recording of the master that runs it or ran it last."""
    found, document, content, why = recording.read(job, namespace, system, account, recorder.MOST_BYTES * 2)
    made = Contents(f"{found}/{job}")
    made.add_recording(content, f"no recording: {why}")
    made.add(archive.ELASTICJOB, documents.elastic_job(document, made.scrubber))
    made.add(archive.VERSIONS, local.versions())
    return made
