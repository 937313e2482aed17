"""An announcement about a job as an Event of Kubernetes."""

from __future__ import annotations

import hashlib

from outrider.master.core.k8s.elasticjob.conditions import MESSAGE
from outrider.master.core.k8s.values.identity import name_of
from outrider.master.core.k8s.values.names import DOMAIN, GROUP_VERSION, KIND, Document
from outrider.wire.ids import MemberId

QUIET = frozenset(
    {"GenerationStarted", "MemberCreated", "MemberReady", "MemberSucceeded", "CheckpointSaved", "CheckpointReplicated"}
)
"""Kinds that make no Event. The first four come once a member: a world of 10,000 would push every other Event of the
namespace out of sight; the conditions and members of the status say the same. CheckpointSaved and CheckpointReplicated
come once a save, for as long as the job runs. All of them are in the log and in `outrider events`."""


def event_of(job: Document, kind: str, reason: str, severity: str, member: str | None, now: str) -> Document | None:
    """The Event of an announcement about this job; None for the kinds in QUIET. `now` (RFC 3339) is part of its name:
    told twice it is one, and what happens again is another."""
    if kind in QUIET:
        return None
    metadata = job["metadata"]
    namespace = metadata.get("namespace") or "default"
    said = "\n".join((str(metadata.get("uid")), kind, member or "", reason, now))
    about: Document = {
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "namespace": namespace,
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
    }
    event: Document = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
            "namespace": namespace,
        },
        "involvedObject": about,
        "type": "Warning" if severity == "warning" else "Normal",
        "reason": kind,
        "message": "".join(each if each.isprintable() else " " for each in reason[:MESSAGE]),
        "source": {"component": "outrider"},
        "reportingComponent": f"{DOMAIN}/master",
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    if member is not None:
        pod = name_of(job, MemberId(member))
        event["related"] = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod}
    return event
