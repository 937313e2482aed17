"""ElasticJobs as `outrider top` shows jobs: read with the user's own rights, in the form of a local status document."""

from __future__ import annotations

import datetime
from typing import Any

from outrider.cli.kube import diagnostics
from outrider.cli.kube.api import call_api, cluster
from outrider.master.core import quantities
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import GROUP_VERSION, KIND, PLURAL, Document
from outrider.master.core.k8s.values.replica_specs import has_master, roles_of
from outrider.master.core.spec import WORKER

MIB = 1 << 20
LATE_SECONDS = 60.0
"""Age of the status of a running job from which on it is reported; a master writes it every 10 s while a job trains."""


class ElasticJobs:
    """The ElasticJobs of one namespace."""

    every = 2.0

    def __init__(self, namespace: str | None) -> None:
        self._core, default = cluster()
        self.namespace = namespace or default
        from kubernetes.client import CustomObjectsApi

        self._objects = CustomObjectsApi(self._core.api_client)
        group, version = GROUP_VERSION.split("/")
        self._kind = {"group": group, "version": version, "plural": PLURAL}

    def jobs(self) -> list[Document]:
        read = self._objects.list_namespaced_custom_object
        listed = call_api(read, "list", "", self.namespace, KIND, **self._kind)
        return [document_of(each, _now()) for each in map(mapping, entries(mapping(listed).get("items")))]

    def status(self, job: str) -> Document:
        read = self._objects.get_namespaced_custom_object
        return document_of(mapping(call_api(read, "get", job, self.namespace, KIND, **self._kind)), _now())

    def events(self, job: str) -> list[Document]:
        about = f"involvedObject.kind={KIND},involvedObject.name={job}"
        listed = call_api(self._core.list_namespaced_event, "list", "", self.namespace, "event", field_selector=about)
        found = [_event(each) for each in listed.items]
        return sorted(found, key=lambda event: str(event["time"]))

    def stacks(self, job: str) -> Document:
        return diagnostics.collected("stacks", None, job, self.namespace)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _event(event: Any) -> Document:
    stamp = event.last_timestamp or event.event_time or event.first_timestamp
    return {
        "time": stamp.isoformat() if stamp else "",
        "kind": event.reason or "",
        "severity": "warning" if event.type == "Warning" else "normal",
        "reason": event.message or "",
    }


def document_of(job: Document, now: datetime.datetime) -> Document:
    """An ElasticJob in the form of a status document (docs/reference/status.md). It has fewer facts about members."""
    status, metadata = mapping(job.get("status")), mapping(job.get("metadata"))
    return {
        "job": str(metadata.get("name") or ""),
        "phase": str(status.get("phase") or "Created").lower(),
        "generation": str(status.get("generation") or ""),
        "world": None,
        "step": whole(status.get("step")) or 0,
        "restarts": whole(status.get("restarts")) or 0,
        "goodput": status.get("goodput"),
        "goodput_1h": status.get("goodputHour"),
        "goodput_1d": status.get("goodputDay"),
        "mtbf_seconds": status.get("mtbfSeconds"),
        "time": mapping(status.get("time")),
        "message": str(status.get("message") or ""),
        "exit_code": status.get("exitCode"),
        "members": _members(status),
        "sizes": sizes_of(job),
        "checkpoint_saved_at": status.get("checkpointSavedAt"),
        "excluded_nodes": entries(status.get("excludedNodes")),
        "metrics": mapping(status.get("metrics")),
        "stragglers": [_straggler(each) for each in map(mapping, entries(status.get("stragglers")))],
        "network": {"down": _links(status)},
        "faults": [_fault(each) for each in map(mapping, entries(status.get("faults")))],
        **_late(metadata, str(status.get("phase") or ""), now),
    }


def sizes_of(job: Document) -> tuple[int | None, int | None]:
    """The fewest and the most members to which the job may be scaled, with its master; None: without limit."""
    masters, worker = int(has_master(job)), roles_of(job).get(WORKER, {})
    least, most = whole(worker.get("minReplicas")), whole(worker.get("maxReplicas"))
    return None if least is None else least + masters, None if most is None else most + masters


def _members(status: Document) -> list[Document]:
    slow = {str(each.get("member")): _straggler(each) for each in map(mapping, entries(status.get("stragglers")))}
    listed = [_member(each) for each in map(mapping, entries(status.get("members")))]
    for each in listed:
        own = slow.get(each["id"], {})
        each |= {field: own.get(field) for field in ("own_seconds", "others_seconds")}
    return listed


def _straggler(each: Document) -> Document:
    kept = {field: each.get(field) for field in ("member", "node", "rank", "cause", "reason")}
    return {**kept, "own_seconds": each.get("ownSeconds"), "others_seconds": each.get("othersSeconds")}


def _links(status: Document) -> list[Document]:
    """The links that the job's condition tells of, as one."""
    found = (each for each in map(mapping, entries(status.get("conditions"))) if each.get("type") == "NetworkFault")
    return [{"members": [], "reason": str(each.get("message") or "")} for each in found if each.get("status") == "True"]


def _member(member: Document) -> Document:
    limit = quantities.parsed(member.get("memory"))
    return {
        "id": str(member.get("id") or ""),
        "rank_index": whole(member.get("rankIndex")),
        "state": str(member.get("state") or ""),
        "mode": str(member.get("mode") or ""),
        "node": str(member.get("node") or ""),
        "blocked": str(member.get("reason") or ""),
        "memory_limit_mib": limit / MIB if limit else 0.0,
    }


def _fault(fault: Document) -> Document:
    return {**fault, "seconds_lost": fault.get("secondsLost")}


def _late(metadata: Document, phase: str, now: datetime.datetime) -> Document:
    """`late`: why the status may be old, empty if it is not or if its time is unknown; and then `as_of`, its time."""
    stamps = [str(each.get("time")) for each in map(mapping, entries(metadata.get("managedFields")))
              if each.get("subresource") == "status"]  # fmt: skip
    try:
        written = max(map(datetime.datetime.fromisoformat, stamps))
        age = (now - written).total_seconds()
    except (ValueError, TypeError):  # an old API server names no subresource
        return {"late": ""}
    if phase != "Running" or age < LATE_SECONDS:
        return {"late": ""}
    late = f"the status was last written {age:.0f} s ago: does a master run? (outrider doctor --cluster)"
    return {"late": late, "as_of": written.timestamp()}
