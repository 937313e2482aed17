"""The members of the bundle of a job in a cluster."""

from __future__ import annotations

from outrider.cli.bundling import archive, documents, local
from outrider.cli.bundling.local import Contents
from outrider.cli.kube import recording
from outrider.master.recording import recorder


def contents(job: str, namespace: str | None, system: str, account: str | None) -> Contents:
    """The ElasticJob, which has the status, its Events, and the recording of the master that runs it or ran it last."""
    found = recording.read(job, namespace, system, account, recorder.MOST_BYTES * 2)
    made = Contents(f"{found.namespace}/{job}")
    made.left_out += found.missing
    if found.recording:
        made.members[archive.RECORDING] = found.recording
        made.note_earlier((found.job.get("status") or {}).get("generation"))
    made.add(archive.ELASTICJOB, documents.elastic_job(found.job, made.scrubber))
    made.add_events(documents.event_of_the_cluster(each, made.scrubber) for each in found.events)
    made.add(archive.VERSIONS, local.versions())
    return made
