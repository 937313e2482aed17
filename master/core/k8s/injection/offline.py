"""Injects whatever document has pods in it, as the webhook will do with each of those pods (`outrider inject`)."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, replace

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.injection.webhook import Injection, inject, passed_through
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.owners.pod_templates import Template, templates_of
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import INJECT, Document

ASKED = {INJECT: "enabled"}
"""Who calls this asks for every pod, except those that say no themselves."""


@dataclass(frozen=True, slots=True)
class Injected:
    where: str
    """`Pod gpt-0`, `Job gpt`, `PyTorchJob gpt, Worker`."""
    injection: Injection
    asks: bool
    """Its own label asks for it, or its controller does, so that the webhook needs no label on the namespace."""
    counted_by: str = ""
    """What of each pod the webhook will read its rank index from, which is not known here."""


def inject_all(document: Document, namespace: str, policy: Policy) -> tuple[Document, list[Injected]]:
    """A copy in which every pod and pod template is injected, and what was done to each, in order. `namespace`: empty
    for the document's own. Raises ValueError where an annotation or a name cannot be meant."""
    new = deepcopy(document)
    if str(document.get("kind")).endswith("List") and isinstance(document.get("items"), list):
        found = [inject_all(item, namespace, policy) for item in map(mapping, entries(document["items"]))]
        new["items"] = [item for item, _ in found]
        return new, [injected for _, of_item in found for injected in of_item]
    own = str(mapping(document.get("metadata")).get("namespace") or "default")
    return new, [_injected(template, namespace or own, policy) for template in templates_of(new)]


def _injected(template: Template, namespace: str, policy: Policy) -> Injected:
    pod = template.stand_in()
    of_template = "" if template.owner is None else "its pod template's "
    _check_texts(f"{template.where}: {of_template}metadata", mapping(template.holder.get("metadata")))
    labels = mapping(mapping(pod.get("metadata")).get("labels"))
    asks = owners_owner.is_asked_for(labels, {}) or template.is_ours
    refused, place = template.unknown or owners_owner.uncounted(pod), None
    try:
        if not refused:
            place = owners_owner.place_of(pod, namespace, ASKED)
    except ValueError as error:
        raise ValueError(f"{template.where}: {error}") from error
    if place is None:
        return Injected(
            template.where, passed_through(template.holder, refused or f'its label {INJECT} is "false"'), asks
        )
    injection = inject(template.holder, replace(place, member_path=template.member_path), policy)
    template.holder.update(injection.pod)
    return Injected(template.where, injection, asks, template.counted_by if injection.changed else "")


def _check_texts(field: str, metadata: Document) -> None:
    """The API server refuses a label that is written true where "true" is meant. Raises ValueError."""
    for kind in ("labels", "annotations"):
        if not isinstance(metadata.get(kind) or {}, dict):
            raise ValueError(f"{field}.{kind}: it must be an object, with a text for each name")
        for name, value in mapping(metadata.get(kind)).items():
            if value is not None and not (isinstance(name, str) and isinstance(value, str)):
                raise ValueError(f"{field}.{kind}: {name} is {json.dumps(value)}, and must be text, in quotes")
