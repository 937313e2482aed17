"""What the container of each parameter server is to have. Its role's template says it, and the job's annotation
`outrider.dev/ps-resources` says otherwise (`memory=8Gi@rank-index=0, cpu=2@rank-index=0`).

Both may be edited while the job trains. A pod says by an annotation of ours what it was made with, in the same words:
where these are others than the job's, its parameter server is moved (`master/core/ps/ps_migration.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy

from outrider.master.core import quantities
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values.fields import entries, mapping, shown
from outrider.master.core.k8s.values.names import PS_RESOURCES, Document
from outrider.master.core.k8s.values.replica_specs import roles_of, sizes

PS = "ps"
_ASKED = re.compile(r"(?P<name>cpu|memory)=(?P<amount>[^@]+)@rank-index=(?P<index>[0-9]{1,6})")
FORM = "memory=AMOUNT@rank-index=N or cpu=AMOUNT@rank-index=N"


def in_words(job: Document, index: int) -> str:
    """Of the parameter server with this rank index: the same resources are always the same words."""
    found = _of_template(mapping(roles_of(job)[PS].get("template")))
    found = _with(found, _asked(job, index))
    requests, limits = (_listed(mapping(found.get(kind))) for kind in ("requests", "limits"))
    return " and ".join(filter(None, [requests, limits and f"at most {limits}"])) or "no resources of its own"


def edition(job: Document) -> tuple[object, object]:
    """Another one where the job was edited: the generation that the API server counts, and what it does not."""
    metadata = mapping(job.get("metadata"))
    return metadata.get("generation"), mapping(metadata.get("annotations")).get(PS_RESOURCES)


def applied(pod: Document, job: Document, index: int) -> None:
    """The pod's trainer gets what the annotation says for its rank index."""
    name, asked = trainer_name(pod), _asked(job, index)
    for container in pod["spec"]["containers"]:
        if container.get("name") == name and asked:
            container["resources"] = _with(mapping(container.get("resources")), asked)


def objections(job: Document) -> Iterator[str]:
    """Sentences that begin with the path of the annotation."""
    path, role = f"metadata.annotations[{PS_RESOURCES}]", roles_of(job).get(PS)
    for part in _parts(job):
        found = _ASKED.fullmatch(part)
        if role is None:
            yield f"{path}: the job has no parameter servers"
        elif found is None:
            yield f"{path}: {shown(part)} is not understood; write {FORM}, with commas between them"
        elif int(found["index"]) >= sizes(role)[2]:
            yield f"{path}: {part}: there are {sizes(role)[2]} parameter servers, counted from 0"
        elif (quantities.parsed(found["amount"]) or 0) <= 0:
            yield f"{path}: {part}: {shown(found['amount'])} is no amount above 0; write it as 2, 500m or 16Gi"


def _parts(job: Document) -> list[str]:
    notes = mapping(mapping(job.get("metadata")).get("annotations"))
    return [part.strip() for part in str(notes.get(PS_RESOURCES) or "").split(",") if part.strip()]


def _asked(job: Document, index: int) -> dict[str, str]:
    found = [match for part in _parts(job) if (match := _ASKED.fullmatch(part)) is not None]
    return {match["name"]: match["amount"] for match in found if int(match["index"]) == index}


def _of_template(template: Document) -> Document:
    name = trainer_name(template)
    listed = [mapping(each) for each in entries(mapping(template.get("spec")).get("containers"))]
    return mapping(next((each.get("resources") for each in listed if each.get("name") == name), None))


def _with(resources: Document, asked: dict[str, str]) -> Document:
    """A limit is set where there was one: who had none goes on without."""
    found = deepcopy(resources)
    for name, amount in asked.items():
        found["requests"] = {**mapping(found.get("requests")), name: amount}
        if name in mapping(found.get("limits")):
            found["limits"] = {**found["limits"], name: amount}
    return found


def _listed(amounts: Document) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items()))
