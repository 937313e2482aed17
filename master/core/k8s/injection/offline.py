"""`outrider inject`: injects the pods and pod templates in a document, as the webhook injects each pod."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.injection.webhook import Injection, inject, passed_through
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.owners.pod_templates import Template, templates_of
from outrider.master.core.k8s.values.field_errors import invalid
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import INJECT, Document

NAMESPACE_LABELS = {INJECT: "enabled"}
"""Labels of a namespace that requests injection for every pod that does not opt out."""


@dataclass(frozen=True, slots=True)
class Injected:
    """The result for one pod or pod template of a document."""

    where: str
    """Name of the pod or template for messages: `Pod gpt-0`, `Job gpt`, `PyTorchJob gpt, Worker`."""
    injection: Injection
    asks: bool
    """Whether its own label or its controller requests injection, so the namespace needs no label."""
    counted_by: str = ""
    """Source of each pod's rank index, which only the webhook can read; empty if there is none."""


def inject_all(document: Document, namespace: str, policy: Policy) -> tuple[Document, list[Injected]]:
    """A copy with every pod and pod template injected, and the result for each, in order.

    `namespace`: empty for the document's own. Raises ValueError for an invalid annotation or name.
    """
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
            place = owners_owner.place_of(pod, namespace, NAMESPACE_LABELS)
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
    """Raises ValueError for labels and annotations that are not strings, such as true without quotes."""
    for kind in ("labels", "annotations"):
        if not isinstance(metadata.get(kind) or {}, dict):
            raise ValueError(invalid(f"{field}.{kind}", metadata[kind], "must be an object of strings"))
        for name, value in mapping(metadata.get(kind)).items():
            if value is not None and not (isinstance(name, str) and isinstance(value, str)):
                raise ValueError(invalid(f"{field}.{kind}[{name}]", value, "must be a string; put it in quotes"))
