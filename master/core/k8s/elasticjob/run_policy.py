"""`spec.runPolicy`, as jobs of Kubeflow have it. It says until when a job may run, and what is left of one that is
over.

Times come from the document alone, so that every master finds the same ones. What of a runPolicy is no field here is
refused with what to use instead, because a limit that is passed over is found out when it is too late.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from outrider.master.core.k8s.elasticjob import begin_anew
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.phases import FAILED, SUCCEEDED, SUSPENDED, is_over

FIELD = "runPolicy"
CLEAN, TTL, DEADLINE = "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds"
FIELDS = (CLEAN, TTL, DEADLINE)
INSTEAD = {
    "suspend": "spec.suspend is the field",
    "backoffLimit": "spec.maxRestarts limits restarts in place, restartLimit of a role failed pods of a rank index",
    "schedulingPolicy": "set schedulerName, priorityClassName and the labels of your queue in the template",
    "managedBy": "there is one controller",
}


def _policy(job: Document) -> Document:
    return mapping(mapping(job.get("spec")).get(FIELD))


def ends_at(job: Document) -> float | None:
    """Unix time after which it may not run; counted anew when a suspension ends, or the job begins anew."""
    seconds = whole(_policy(job).get(DEADLINE))
    suspended = _condition(job, SUSPENDED)
    if seconds is None or job["spec"].get("suspend") or suspended.get("status") == "True":
        return None
    began = begin_anew.begun_anew(job) or job["metadata"].get("creationTimestamp")
    since = suspended.get("lastTransitionTime") or began
    return None if since is None else _unix(since) + seconds


def why_it_ends(job: Document) -> str:
    return f"it has run for the {_policy(job)[DEADLINE]} s that spec.{FIELD}.{DEADLINE} allows"


def is_exceeded(job: Document, message: str) -> bool:
    """Whether that is how it has ended, by the sentence of its end."""
    return DEADLINE in _policy(job) and why_it_ends(job) in message


def expires_at(job: Document) -> float | None:
    """Unix time after which a job that is over is deleted."""
    seconds = whole(_policy(job).get(TTL))
    ends = (_condition(job, kind) for kind in (SUCCEEDED, FAILED))
    end = next((each for each in ends if each.get("status") == "True"), None)
    if seconds is None or end is None or job["spec"].get("adopts") or not is_over(job):
        return None
    return _unix(end["lastTransitionTime"]) + seconds


def why_it_goes(job: Document) -> str:
    return f"The job is over for {_policy(job)[TTL]} s, and is deleted by spec.{FIELD}.{TTL}."


def leaves_no_pod(job: Document) -> bool:
    """Once it is over. Those that still run are ended by any policy."""
    return _policy(job).get(CLEAN) == "All"


def _condition(job: Document, kind: str) -> Document:
    found = (mapping(each) for each in entries(mapping(job.get("status")).get("conditions")))
    return next((each for each in found if each.get("type") == kind), {})


def _unix(text: object) -> float:
    """RFC 3339, as the API server and `record.now` write it."""
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()


def objections(job: Document) -> Iterator[str]:
    """Sentences that begin with the path of a field. It fits the schema, which lets fields of others through."""
    is_adopted = mapping(job.get("spec")).get("adopts") is not None
    for name in (name for name, value in _policy(job).items() if value is not None):
        if name not in FIELDS:
            known = INSTEAD.get(name, f"there are {', '.join(FIELDS)}")
            yield f"spec.{FIELD}.{name}: it is no field here: {known}"
        elif is_adopted:
            yield f"spec.{FIELD}.{name}: the pods are another owner's, which has such a field of its own"
