"""By whom a pod was made and from which template of theirs. The status of their job keeps some of it at its end
(docs/adr/0036)."""

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
"""Of a StatefulSet's pods."""
OWNER, REVISION, BEGUN_ANEW = "owner", "revision", "begunAnew"
"""Fields of `status.saved`."""


@dataclass(frozen=True, slots=True)
class Made:
    kind: str
    name: str
    owner: str
    """The uid of the outermost owner."""
    revision: str
    """Empty: not known."""


UNREADABLE = Made("", "", "", "")
"""The API server has not given its owners."""


def made(pod: Document, owner: Document) -> Made:
    """`owner`: the outermost one, as it reads now."""
    metadata = mapping(owner.get("metadata"))
    revision = _label(pod) if owner.get("kind") == "StatefulSet" else _of_templates(owner)
    return Made(str(owner.get("kind")), str(metadata.get("name")), str(metadata.get("uid") or ""), revision)


def kept(status: Document, job: Document, pods: Sequence[Document], owner: Document | None) -> Document:
    """The status that is about to be written, with what is kept of the last one in `job`, and at the end with whose
    pods the members were: once, since pods of another revision may come a moment later. `owner`: as it was read last.
    """
    before = mapping(job.get("status"))
    saved = mapping(before.get("saved"))
    fields = {BEGUN_ANEW: saved.get(BEGUN_ANEW)}
    if status.get("phase") in OVER and mapping(job["spec"]).get("adopts"):
        was_over = before.get("phase") in OVER
        fields |= (
            {each: saved.get(each) for each in (OWNER, REVISION)} if was_over else _ended(status, job, pods, owner)
        )
    said = {field: value for field, value in fields.items() if value}
    return {**status, "saved": {**mapping(status.get("saved")), **said}} if said else status


def members(status: Document) -> frozenset[str]:
    """The uids of their pods."""
    return frozenset(
        entry[0]
        for entry in mapping(state_of(status).get("members")).values()
        if isinstance(entry, list) and entry and isinstance(entry[0], str)
    )


def state_of(status: Document) -> Document:
    """What one master leaves to the next; empty where it cannot be read."""
    try:
        return mapping(json.loads(mapping(status.get("saved")).get("state") or "null"))
    except (ValueError, TypeError, RecursionError):
        return {}


def owner_of(job: Document) -> str:
    """The uid of the owner that it stands for."""
    adopts = mapping(job["spec"].get("adopts"))
    found = [mapping(each) for each in entries(mapping(job.get("metadata")).get("ownerReferences"))]
    if len(found) > 1:
        wanted = (adopts.get("kind"), adopts.get("name"))
        found = [each for each in found if (each.get("kind"), each.get("name")) == wanted]
    return str(found[0].get("uid") or "") if found else ""


def _ended(status: Document, job: Document, pods: Sequence[Document], owner: Document | None) -> Document:
    """More than one revision where a roll-out was under way."""
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
