"""The owner that created a pod, and the revision of its template; an ended job's status stores both (docs/adr/0036)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.master.core.k8s.owners.pod_templates import templates_of
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.phases import OVER

LABEL = "controller-revision-hash"
"""Label of a StatefulSet's pods with their revision."""
OWNER, REVISION, BEGUN_ANEW = "owner", "revision", "begunAnew"
"""Fields of `status.saved`."""


@dataclass(frozen=True, slots=True)
class Made:
    """The outermost owner of a pod and the revision of the pod's template."""

    kind: str
    name: str
    owner: str
    """UID of the outermost owner."""
    revision: str
    """Revision of the template; empty if unknown."""


UNREADABLE = Made("", "", "", "")
"""The value for a pod whose owners could not be read."""


def made(pod: Document, owner: Document) -> Made:
    """The owner and revision of a pod. `owner`: the present document of the outermost owner."""
    metadata = mapping(owner.get("metadata"))
    revision = _label(pod) if owner.get("kind") == "StatefulSet" else _of_templates(owner)
    return Made(str(owner.get("kind")), str(metadata.get("name")), str(metadata.get("uid") or ""), revision)


def kept(status: Document, job: Document, pods: Sequence[Document], owner: Document | None) -> Document:
    """The status to write, with the fields to keep from the last status in `job`.

    The first status of an ended job also stores the owner and the revisions of its pods; later ones keep them, because
    pods of another revision may come at any moment. `owner`: the last known document of the owner.
    """
    before = mapping(job.get("status"))
    saved = mapping(before.get("saved"))
    fields = {BEGUN_ANEW: saved.get(BEGUN_ANEW)}
    if status.get("phase") in OVER and mapping(job["spec"]).get("adopts"):
        was_over = before.get("phase") in OVER
        fields |= (
            {each: saved.get(each) for each in (OWNER, REVISION)} if was_over else _ended(status, job, pods, owner)
        )
    stored = {field: value for field, value in fields.items() if value}
    return {**status, "saved": {**mapping(status.get("saved")), **stored}} if stored else status


def members(status: Document) -> frozenset[str]:
    """UIDs of the pods of the members in this status."""
    return frozenset(
        entry[0]
        for entry in mapping(state_of(status).get("members")).values()
        if isinstance(entry, list) and entry and isinstance(entry[0], str)
    )


def state_of(status: Document) -> Document:
    """The state that one master stores for the next; empty if it cannot be read."""
    try:
        return mapping(json.loads(mapping(status.get("saved")).get("state") or "null"))
    except (ValueError, TypeError, RecursionError):
        return {}


def owner_of(job: Document) -> str:
    """UID of the owner of the job's pods."""
    adopts = mapping(job["spec"].get("adopts"))
    found = [mapping(each) for each in entries(mapping(job.get("metadata")).get("ownerReferences"))]
    if len(found) > 1:
        wanted = (adopts.get("kind"), adopts.get("name"))
        found = [each for each in found if (each.get("kind"), each.get("name")) == wanted]
    return str(found[0].get("uid") or "") if found else ""


def _ended(status: Document, job: Document, pods: Sequence[Document], owner: Document | None) -> Document:
    """Owner and revisions at the end of a job; several revisions if a roll-out was under way."""
    if mapping(job["spec"]["adopts"]).get("kind") == "StatefulSet":
        of_job = members(status)
        found = {_label(pod) for pod in pods if pod["metadata"].get("uid") in of_job}
    else:
        found = {"" if owner is None else _of_templates(owner)}
    return {OWNER: owner_of(job), REVISION: "" if "" in found else " ".join(sorted(found))}


def _label(pod: Document) -> str:
    return str(mapping(pod["metadata"].get("labels")).get(LABEL) or "")


def _of_templates(owner: Document) -> str:
    templates = [template.holder for template in templates_of(owner)]
    text = json.dumps(templates, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if templates else ""
