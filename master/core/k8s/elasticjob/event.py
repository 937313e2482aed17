"""Kubernetes Events about a job."""

from __future__ import annotations

import hashlib

from outrider.master.core.k8s.elasticjob.conditions import MESSAGE
from outrider.master.core.k8s.values.identity import name_of
from outrider.master.core.k8s.values.names import DOMAIN, GROUP_VERSION, KIND, Document
from outrider.wire.ids import MemberId

QUIET = frozenset(
    {"GenerationStarted", "MemberCreated", "MemberReady", "MemberSucceeded", "CheckpointSaved", "CheckpointReplicated"}
)
"""Kinds that become no Kubernetes Event. The first four occur once per member: with 10,000 members they would push all
other Events of the namespace out of sight, and the status has the same facts. CheckpointSaved and CheckpointReplicated
occur once per save, for as long as the job runs. All of them are in the log and in `outrider events`."""


def event_of(job: Document, kind: str, reason: str, severity: str, member: str | None, now: str) -> Document | None:
    """The Kubernetes Event for something that happened to a job; None for the kinds in QUIET.

    `now` (RFC 3339) is part of its name: sending an Event twice creates one object, and a later Event is a new object.
    """
    if kind in QUIET:
        return None
    metadata = job["metadata"]
    namespace = metadata.get("namespace") or "default"
    identity = "\n".join((str(metadata.get("uid")), kind, member or "", reason, now))
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
            "name": f"{metadata['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
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
