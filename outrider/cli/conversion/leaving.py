"""Notes about fields that are not converted, so that nothing is left out silently."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import CONTAINER, Document

UNKNOWN = "it has no counterpart here"


def left_out(given: Document, taken: Collection[str], why: Mapping[str, str], path: str) -> list[str]:
    """A note for each field that is set and not converted."""
    return [
        f"{path}.{name}: not converted: {why.get(str(name), UNKNOWN)}."
        for name, value in given.items()
        if value is not None and name not in taken
    ]


def filled(roles: Mapping[str, Document], path: str, notes: list[str], needed: str = "") -> dict[str, Document]:
    """The roles with at least one member, which our roles must have. Roles with 0 replicas are left out, except the one
    that is needed, which gets 1."""
    made = {}
    for name, role in roles.items():
        if mapping(role).get("replicas") != 0:
            made[name] = role
        elif name.lower() == needed or len(roles) == 1:
            made[name] = {**role, "replicas": 1}
            notes.append(f"{path}.{name}.replicas: 1 instead of 0: a job must have at least one.")
        else:
            notes.append(f"{path}.{name}: not converted: it has 0 replicas.")
    return made


def with_trainer(template: Document, name: str) -> Document:
    """The template with an annotation for the trainer's container. Other operators use the container of this name,
    Outrider the first one, unless the annotation names another."""
    containers = [mapping(each) for each in entries(mapping(template.get("spec")).get("containers"))]
    if any(each.get("name") == name for each in containers[1:]) and containers[0].get("name") != name:
        metadata = mapping(template.get("metadata"))
        notes = {CONTAINER: name, **mapping(metadata.get("annotations"))}
        return {**template, "metadata": {**metadata, "annotations": notes}}
    return template
