"""Whether a pods' owner is over or suspended, in its own words. A Job that Kubernetes gave up (`backoffLimit`,
`activeDeadlineSeconds`) makes no pod any more, and whoever waits for one waits for ever.

A Job, a JobSet and a training operator's job say it alike: a condition that is True. Of others (a StatefulSet) there is
no end.
"""

from __future__ import annotations

from outrider.master.core.events import OwnerEnded
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.text import brief

FAILED = "Failed"
COMPLETE = ("Complete", "Completed", "Succeeded")


def end_of(owner: Document) -> OwnerEnded | None:
    """None: it goes on."""
    who = f"{owner.get('kind')} {mapping(owner.get('metadata')).get('name')}"
    for condition in map(mapping, entries(mapping(owner.get("status")).get("conditions"))):
        kind = condition.get("type")
        if condition.get("status") != "True" or kind not in (FAILED, *COMPLETE):
            continue
        words = ": ".join(brief(str(condition[key])) for key in ("reason", "message") if condition.get(key))
        why = f" ({words})" if words else ""
        if kind == FAILED:
            return OwnerEnded(False, f"{who} has failed{why}")
        return OwnerEnded(True, f"{who} is complete{why}")
    return None


def is_suspended(owner: Document) -> bool:
    """It takes its pods and makes none for now: `spec.suspend` of a Job and a JobSet, `runPolicy.suspend` of what the
    training operator runs."""
    spec = mapping(owner.get("spec"))
    return spec.get("suspend") is True or mapping(spec.get("runPolicy")).get("suspend") is True
