"""Unknown fields of a pod template, which the API server drops with only a warning.

An ElasticJob's template may have any field; a misspelt one is found when a pod is created from it. With the query
`WARN`, Kubernetes from 1.25 on responds with a warning such as `unknown field "spec.containers[0].comand"`; older
versions ignore the query. The pod that was sent has injected parts too, so each entry of a list is looked up in the
template: the equal entry, or the one with the same name. A field that the template does not have is not the user's and
is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.pytorch_fields import OUR_ROLES, THEIR_ROLES
from outrider.wire.ids import Role

WARN = {"fieldValidation": "Warn"}
"""Query parameter for the creation of a pod. https://kubernetes.io/docs/reference/using-api/api-concepts/#setting-the-field-validation-level"""
REASON = "UnknownTemplateField"
MOST = 10
"""Maximum number of fields of a job that are reported."""
OF_TEMPLATE = frozenset({"metadata", "spec"})
OF_METADATA = frozenset({
    "annotations", "clusterName", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
    "generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences", "resourceVersion",
    "selfLink", "uid",
})  # fmt: skip
"""Known fields of metadata. Other fields are never sent, so no API server can report them."""
_UNKNOWN = re.compile(r'^unknown field "([^"\\]+)"')
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(r"(spec\.\S+): ")


def found(job: Document, role: Role, pod: Document, warnings: Sequence[str]) -> list[str]:
    """Paths of the unknown fields in the ElasticJob. `pod`: the pod that was sent; `warnings`: the API server's."""
    path, template = _template(job, role)
    beside = [name for name in template if name not in OF_TEMPLATE]
    beside += [f"metadata.{name}" for name in mapping(template.get("metadata")) if name not in OF_METADATA]
    unknown = [match[1] for match in map(_UNKNOWN.match, warnings) if match]
    within = [there for each in unknown if (there := _in(template, each, pod))]
    return [f"{path}.{each}" for each in (*beside, *within)]


def sentence(path: str) -> str:
    """The message about an unknown field; `left_by` reads the paths from these messages."""
    return f"{path}: unknown field; the API server creates the pods without it"


def left_by(job: Document) -> list[str]:
    """Paths of the unknown fields in the message of the condition Valid."""
    conditions = map(mapping, entries(mapping(job.get("status")).get("conditions")))
    text = "; ".join(str(each.get("message")) for each in conditions if each.get("reason") == REASON)
    return still_there(job, _PATH.findall(text))


def still_there(job: Document, paths: Sequence[str]) -> list[str]:
    """The paths that the job still has."""
    return [path for path in paths if _in(job, path, job)]


def _template(job: Document, role: Role) -> tuple[str, Document]:
    spec = mapping(job.get("spec"))
    for field in (OUR_ROLES, THEIR_ROLES):
        for name, value in mapping(spec.get(field)).items():
            if str(name).lower() == role:
                return f"spec.{field}.{name}.template", mapping(mapping(value).get("template"))
    return "", {}


def _in(own: object, path: str, sent: object) -> str:
    """The path of the same field in `own`; empty if `own` does not have it."""
    found = ""
    for name, number in _STEP.findall(path):
        if name:
            if name not in mapping(own):
                return ""
            own, sent, found = mapping(own)[name], mapping(sent).get(name), f"{found}.{name}"
        else:
            one = next(iter(entries(sent)[int(number) : int(number) + 1]), None)
            place = next(_same(one, entries(own)), None)
            if place is None:
                return ""
            own, sent, found = entries(own)[place], one, f"{found}[{place}]"
    return found.removeprefix(".")


def _same(one: object, among: Sequence[object]) -> Iterator[int]:
    yield from (place for place, each in enumerate(among) if each == one)
    if (name := mapping(one).get("name")) is not None:
        yield from (place for place, each in enumerate(among) if mapping(each).get("name") == name)
