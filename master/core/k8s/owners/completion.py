"""Whether the owner of pods has ended or is suspended, by its status and spec.

A Job that has failed (`backoffLimit`, `activeDeadlineSeconds`) creates no pods any more, so waiting for one would never
end. A Job, a JobSet and a training operator's job have a condition that is True at their end. Other owners, such as a
StatefulSet, have no end.
"""

from __future__ import annotations

from outrider.master.core.events import OwnerEnded
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.text import brief

FAILED = "Failed"
COMPLETE = ("Complete", "Completed", "Succeeded")


def end_of(owner: Document) -> OwnerEnded | None:
    """The end of the owner; None if it continues."""
    name = f"{owner.get('kind')} {mapping(owner.get('metadata')).get('name')}"
    for condition in map(mapping, entries(mapping(owner.get("status")).get("conditions"))):
        kind = condition.get("type")
        if condition.get("status") != "True" or kind not in (FAILED, *COMPLETE):
            continue
        words = ": ".join(brief(str(condition[key])) for key in ("reason", "message") if condition.get(key))
        why = f" ({words})" if words else ""
        if kind == FAILED:
            return OwnerEnded(False, f"{name} has failed{why}")
        return OwnerEnded(True, f"{name} is complete{why}")
    return None


def is_suspended(owner: Document) -> bool:
    """Whether the owner deletes its pods and creates none for now: `spec.suspend` of a Job or a JobSet,
    `runPolicy.suspend` of a training operator's job."""
    spec = mapping(owner.get("spec"))
    return spec.get("suspend") is True or mapping(spec.get("runPolicy")).get("suspend") is True
