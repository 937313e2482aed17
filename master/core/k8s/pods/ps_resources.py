"""The resources of each parameter server, by the template and the annotation `outrider.dev/ps-resources`.

The annotation (`memory=8Gi@rank-index=0, cpu=2@rank-index=0`) overrides the template of the role. Both may be edited
while the job trains. An annotation of each pod has the resources that the pod was created with, as the same text: if it
differs from the job's, the parameter server is migrated (`master/core/ps/ps_migration.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy

from outrider.master.core import quantities
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values.field_errors import forbidden, invalid
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import PS_RESOURCES, Document
from outrider.master.core.k8s.values.replica_specs import roles_of, sizes

PS = "ps"
_REQUEST = re.compile(r"(?P<name>cpu|memory)=(?P<amount>[^@]+)@rank-index=(?P<index>[0-9]{1,6})")
FORM = "memory=AMOUNT@rank-index=N or cpu=AMOUNT@rank-index=N"


def in_words(job: Document, index: int) -> str:
    """The resources of a parameter server as text; equal resources have equal text."""
    found = _of_template(mapping(roles_of(job)[PS].get("template")))
    found = _with(found, _requested(job, index))
    requests, limits = (_listed(mapping(found.get(kind))) for kind in ("requests", "limits"))
    return " and ".join(filter(None, [requests, limits and f"at most {limits}"])) or "no resources of its own"


def edition(job: Document) -> tuple[object, object]:
    """A value that changes with each edit of the job: metadata.generation, and the annotation that it ignores."""
    metadata = mapping(job.get("metadata"))
    return metadata.get("generation"), mapping(metadata.get("annotations")).get(PS_RESOURCES)


def applied(pod: Document, job: Document, index: int) -> None:
    """Gives the pod's trainer the resources that the annotation sets for its rank index."""
    name, requested = trainer_name(pod), _requested(job, index)
    for container in pod["spec"]["containers"]:
        if container.get("name") == name and requested:
            container["resources"] = _with(mapping(container.get("resources")), requested)


def objections(job: Document) -> Iterator[str]:
    """Field errors of the annotation."""
    path, role = f"metadata.annotations[{PS_RESOURCES}]", roles_of(job).get(PS)
    for part in _parts(job):
        found = _REQUEST.fullmatch(part)
        if role is None:
            yield forbidden(path, "the job has no parameter servers")
        elif found is None:
            yield invalid(path, part, f"must be {FORM}; separate several with commas")
        elif int(found["index"]) >= sizes(role)[2]:
            yield invalid(path, part, f"rank-index must be less than {sizes(role)[2]}, the number of parameter servers")
        elif (quantities.parsed(found["amount"]) or 0) <= 0:
            yield invalid(path, part, "the amount must be greater than 0, such as 2, 500m or 16Gi")


def _parts(job: Document) -> list[str]:
    notes = mapping(mapping(job.get("metadata")).get("annotations"))
    return [part.strip() for part in str(notes.get(PS_RESOURCES) or "").split(",") if part.strip()]


def _requested(job: Document, index: int) -> dict[str, str]:
    found = [match for part in _parts(job) if (match := _REQUEST.fullmatch(part)) is not None]
    return {match["name"]: match["amount"] for match in found if int(match["index"]) == index}


def _of_template(template: Document) -> Document:
    name = trainer_name(template)
    listed = [mapping(each) for each in entries(mapping(template.get("spec")).get("containers"))]
    return mapping(next((each.get("resources") for each in listed if each.get("name") == name), None))


def _with(resources: Document, requested: dict[str, str]) -> Document:
    """The resources with the requested amounts. A limit is only raised or lowered, never added."""
    found = deepcopy(resources)
    for name, amount in requested.items():
        found["requests"] = {**mapping(found.get("requests")), name: amount}
        if name in mapping(found.get("limits")):
            found["limits"] = {**found["limits"], name: amount}
    return found


def _listed(amounts: Document) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items()))
