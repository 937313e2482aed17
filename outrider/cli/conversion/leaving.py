"""What is not carried over: nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import CONTAINER, Document

UNKNOWN = "it has no counterpart here"


def left_out(given: Document, taken: Collection[str], why: Mapping[str, str], path: str) -> list[str]:
    """A sentence for each field that is set and not taken."""
    return [
        f"{path}.{name}: left out: {why.get(str(name), UNKNOWN)}."
        for name, value in given.items()
        if value is not None and name not in taken
    ]


def filled(roles: Mapping[str, Document], path: str, notes: list[str], needed: str = "") -> dict[str, Document]:
    """Our roles have one member each at the least: those of none are left out, but for the one that is needed."""
    made = {}
    for name, role in roles.items():
        if mapping(role).get("replicas") != 0:
            made[name] = role
        elif name.lower() == needed or len(roles) == 1:
            made[name] = {**role, "replicas": 1}
            notes.append(f"{path}.{name}.replicas: 1 instead of 0: a job has at least one.")
        else:
            notes.append(f"{path}.{name}: left out: it has no replicas.")
    return made


def with_trainer(template: Document, name: str) -> Document:
    """Their trainer is the container of this name, ours the first one where nothing says otherwise."""
    containers = [mapping(each) for each in entries(mapping(template.get("spec")).get("containers"))]
    if any(each.get("name") == name for each in containers[1:]) and containers[0].get("name") != name:
        metadata = mapping(template.get("metadata"))
        notes = {CONTAINER: name, **mapping(metadata.get("annotations"))}
        return {**template, "metadata": {**metadata, "annotations": notes}}
    return template
