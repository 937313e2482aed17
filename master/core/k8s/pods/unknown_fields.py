"""Fields of a pod template that the API server does not know. It makes the pod without them, and only a warning says
so.

An ElasticJob's template may hold any field; a misspelt one is met when a pod is made from it. A Kubernetes from 1.25 on
that is asked with `WARN` then answers with a warning, `unknown field "spec.containers[0].comand"`; an older one passes
over what it is asked there. The pod that was sent is not the template, ours is in it: an entry of a list is looked for
in the template as the same one, else by its name. What is not found there is not the user's, and he is not told of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.pytorch_fields import OUR_ROLES, THEIR_ROLES
from outrider.wire.ids import Role

WARN = {"fieldValidation": "Warn"}
"""Of a query. https://kubernetes.io/docs/reference/using-api/api-concepts/#setting-the-field-validation-level"""
REASON = "UnknownTemplateField"
MOST = 10
"""Fields of a job that are told."""
OF_TEMPLATE = frozenset({"metadata", "spec"})
OF_METADATA = frozenset({
    "annotations", "clusterName", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
    "generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences", "resourceVersion",
    "selfLink", "uid",
})  # fmt: skip
"""A pod takes some of these from its template; what is none of them is never sent, so that no server can say it."""
_UNKNOWN = re.compile(r'^unknown field "([^"\\]+)"')
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_SAID = re.compile(r"(spec\.\S+): ")


def found(job: Document, role: Role, pod: Document, warnings: Sequence[str]) -> list[str]:
    """Paths in the ElasticJob, as its user wrote them. `pod`: as it was sent; `warnings`: what was answered."""
    path, template = _template(job, role)
    beside = [name for name in template if name not in OF_TEMPLATE]
    beside += [f"metadata.{name}" for name in mapping(template.get("metadata")) if name not in OF_METADATA]
    unknown = [match[1] for match in map(_UNKNOWN.match, warnings) if match]
    within = [there for each in unknown if (there := _in(template, each, pod))]
    return [f"{path}.{each}" for each in (*beside, *within)]


def sentence(path: str) -> str:
    return f"{path}: the API server knows no such field, and pods are made without it"


def left_by(job: Document) -> list[str]:
    """Those that the condition Valid names."""
    conditions = map(mapping, entries(mapping(job.get("status")).get("conditions")))
    said = "; ".join(str(each.get("message")) for each in conditions if each.get("reason") == REASON)
    return still_there(job, _SAID.findall(said))


def still_there(job: Document, paths: Sequence[str]) -> list[str]:
    return [path for path in paths if _in(job, path, job)]


def _template(job: Document, role: Role) -> tuple[str, Document]:
    spec = mapping(job.get("spec"))
    for field in (OUR_ROLES, THEIR_ROLES):
        for name, value in mapping(spec.get(field)).items():
            if str(name).lower() == role:
                return f"spec.{field}.{name}.template", mapping(mapping(value).get("template"))
    return "", {}


def _in(own: object, path: str, sent: object) -> str:
    """The path of the same field in `own`; empty where it has none."""
    said = ""
    for name, number in _STEP.findall(path):
        if name:
            if name not in mapping(own):
                return ""
            own, sent, said = mapping(own)[name], mapping(sent).get(name), f"{said}.{name}"
        else:
            one = next(iter(entries(sent)[int(number) : int(number) + 1]), None)
            place = next(_same(one, entries(own)), None)
            if place is None:
                return ""
            own, sent, said = entries(own)[place], one, f"{said}[{place}]"
    return said.removeprefix(".")


def _same(one: object, among: Sequence[object]) -> Iterator[int]:
    yield from (place for place, each in enumerate(among) if each == one)
    if (name := mapping(one).get("name")) is not None:
        yield from (place for place, each in enumerate(among) if mapping(each).get("name") == name)
