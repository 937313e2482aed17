"""`spec.runPolicy`, as in Kubeflow's jobs: the time limit of a job, and what stays after its end.

Times are derived from the document alone, so every master computes the same ones. Unsupported fields of a runPolicy are
refused with their replacement, because an ignored limit would be noticed too late.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from outrider.master.core.k8s.elasticjob import begin_anew
from outrider.master.core.k8s.values.field_errors import forbidden
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.phases import FAILED, SUCCEEDED, SUSPENDED, is_over

FIELD = "runPolicy"
CLEAN, TTL, DEADLINE = "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds"
FIELDS = (CLEAN, TTL, DEADLINE)
INSTEAD = {
    "suspend": "use spec.suspend",
    "backoffLimit": "use spec.maxRestarts for restarts in place and a role's restartLimit for failed pods",
    "schedulingPolicy": "set schedulerName, priorityClassName and the labels of your queue in the template",
    "managedBy": "only one controller runs ElasticJobs",
}


def _policy(job: Document) -> Document:
    return mapping(mapping(job.get("spec")).get(FIELD))


def ends_at(job: Document) -> float | None:
    """Unix time of the job's deadline; None if it has none. It counts from the last suspension or new start."""
    seconds = whole(_policy(job).get(DEADLINE))
    suspended = _condition(job, SUSPENDED)
    if seconds is None or job["spec"].get("suspend") or suspended.get("status") == "True":
        return None
    began = begin_anew.begun_anew(job) or job["metadata"].get("creationTimestamp")
    since = suspended.get("lastTransitionTime") or began
    return None if since is None else _unix(since) + seconds


def why_it_ends(job: Document) -> str:
    """The reason for stopping a job at its deadline; `is_exceeded` looks for it in the message of the job."""
    return f"it has run for the {_policy(job)[DEADLINE]} s that spec.{FIELD}.{DEADLINE} allows"


def is_exceeded(job: Document, message: str) -> bool:
    """Whether the job ended at its deadline, by its message."""
    return DEADLINE in _policy(job) and why_it_ends(job) in message


def expires_at(job: Document) -> float | None:
    """Unix time after which an ended job is deleted; None if it stays."""
    seconds = whole(_policy(job).get(TTL))
    ends = (_condition(job, kind) for kind in (SUCCEEDED, FAILED))
    end = next((each for each in ends if each.get("status") == "True"), None)
    if seconds is None or end is None or job["spec"].get("adopts") or not is_over(job):
        return None
    return _unix(end["lastTransitionTime"]) + seconds


def why_it_goes(job: Document) -> str:
    """The message of the Event for the deletion of an ended job."""
    return f"The job ended {_policy(job)[TTL]} s ago and is deleted, as spec.{FIELD}.{TTL} sets."


def leaves_no_pod(job: Document) -> bool:
    """Whether all pods are deleted when the job is over; running pods are stopped by any policy."""
    return _policy(job).get(CLEAN) == "All"


def _condition(job: Document, kind: str) -> Document:
    found = (mapping(each) for each in entries(mapping(job.get("status")).get("conditions")))
    return next((each for each in found if each.get("type") == kind), {})


def _unix(text: object) -> float:
    """Unix time of an RFC 3339 text that the API server or the master has written."""
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()


def objections(job: Document) -> Iterator[str]:
    """Field errors for a runPolicy that fits the schema, which lets unknown fields through."""
    is_adopted = mapping(job.get("spec")).get("adopts") is not None
    for name in (name for name, value in _policy(job).items() if value is not None):
        if name not in FIELDS:
            instead = INSTEAD.get(name, f"supported fields: {', '.join(FIELDS)}")
            yield forbidden(f"spec.{FIELD}.{name}", f"not supported; {instead}")
        elif is_adopted:
            yield forbidden(f"spec.{FIELD}.{name}", "not supported with spec.adopts; set it on the pods' controller")
