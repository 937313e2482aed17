"""The PodDisruptionBudget of a job: a drain moves one member at a time.

An eviction is make-before-break: the member continues training while its replacement starts, and the next eviction
waits for the replacement. Missing members that will not come (no room, restart limit reached) do not count: otherwise a
job that trains with three of four members would block a drain for ever. A job of one member never blocks a drain.

`maxUnavailable` follows the job's size by itself, but the API server must find that size by the scale subresource of
the pods' controller. An ElasticJob and a StatefulSet have one that counts all of their members. A Job and a lone pod
have none (the API server then refuses every eviction: "does not implement the scale subresource"). A PyTorchJob's
counts its workers only, as ours does if there is a master. In these cases `minAvailable` is a number, which is written
again whenever the size changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.master.core.k8s.owners.references import owned_by
from outrider.master.core.k8s.pods.observe import is_over, seen
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.identity import key_of
from outrider.master.core.k8s.values.names import JOB, ROLE, Document
from outrider.master.core.k8s.values.names import KIND as OWNER
from outrider.master.core.k8s.values.replica_specs import has_master, members, roles_of
from outrider.master.core.spec import MASTER, WORKER

GROUP = "policy"
KIND = "PodDisruptionBudget"
PLURAL = "poddisruptionbudgets"
SETTLED = 30.0
"""Seconds for which a member must be missing before a drain may take another one in spite of it. A replacement is
created at once, and whether it finds room is known within a few seconds."""


def api_version(group: Document) -> str | None:
    """The API version of PodDisruptionBudgets to use: v1 since Kubernetes 1.21, v1beta1 before 1.25; None if there is
    none. `group`: the document of /apis/policy."""
    served = {str(mapping(version).get("version")) for version in entries(group.get("versions"))}
    return next((f"{GROUP}/{version}" for version in ("v1", "v1beta1") if version in served), None)


def budget_of(job: Document, version: str, lacking: int) -> Document:
    """The PodDisruptionBudget of a job. `lacking`: number of members that are missing and not expected."""
    name = job["metadata"]["name"]
    return {
        "apiVersion": version,
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": key_of(job).partition("/")[0],
            "labels": {JOB: name},
            "ownerReferences": [owned_by(job)],
        },
        "spec": {**_allowed(job, lacking), "selector": {"matchLabels": _selected(job)}},
    }


def _allowed(job: Document, lacking: int) -> Document:
    """One of the two fields; the other is null, so a merge patch removes it."""
    if _counts_by_itself(job):
        return {"maxUnavailable": 1 + lacking, "minAvailable": None}
    return {"maxUnavailable": None, "minAvailable": max(0, desired(job) - lacking - 1)}


def _counts_by_itself(job: Document) -> bool:
    adopts = mapping(job["spec"].get("adopts"))
    return (not adopts and not has_master(job)) or adopts.get("kind") == "StatefulSet"


def _selected(job: Document) -> dict[str, str]:
    """Labels of the pods in the budget: only workers, as our scale subresource counts; of other owners all pods."""
    labels = {JOB: str(job["metadata"]["name"])}
    return labels if job["spec"].get("adopts") or has_master(job) else labels | {ROLE: str(WORKER)}


def desired(job: Document) -> int:
    return members(job)[2]


def lacking(job: Document, pods: Iterable[Document]) -> int:
    """Number of desired members without a pod that runs or may run soon; 0 for a suspended job."""
    if job["spec"].get("suspend"):
        return 0
    there = [pod for pod in pods if not is_over(pod) and not pod["metadata"].get("deletionTimestamp")]
    roles = (WORKER, MASTER) if has_master(job) else (WORKER,)
    counted = [pod for pod in map(seen, there) if pod is not None and (job["spec"].get("adopts") or pod.role in roles)]
    return max(0, desired(job) - sum(1 for pod in counted if not pod.unschedulable))


@dataclass(slots=True)
class Patience:
    """The lowest number of missing members in the last `SETTLED` seconds: fewer count at once, more after that time."""

    counted: int = 0
    _more: int = 0
    _since: float | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the budget accounts for all missing members."""
        return self._since is None

    def look(self, count: int, now: float) -> int:
        if count <= self.counted:
            self.counted, self._since = count, None
        elif self._since is None:
            self._more, self._since = count, now
        else:
            self._more = min(self._more, count)
            if now - self._since >= SETTLED:
                self.counted, self._since = self._more, None
        return self.counted


def others(budgets: Sequence[Document], job: Document, pods: Iterable[Document]) -> list[str]:
    """Names of foreign budgets that select pods of this job: the API server evicts no pod that two budgets select."""
    labels = [mapping(pod["metadata"].get("labels")) for pod in pods]
    if not labels:
        template = mapping(mapping(roles_of(job).get(WORKER, {}).get("template")).get("metadata"))
        labels = [{**mapping(template.get("labels")), **_selected(job)}]
    return sorted(
        budget["metadata"]["name"]
        for budget in budgets
        if not is_of(budget, job) and any(_selects(budget, of_pod) for of_pod in labels)
    )


def is_of(document: Document, job: Document) -> bool:
    """Whether the object was created for this job and is deleted with it."""
    uid = job["metadata"]["uid"]
    return any(reference.get("uid") == uid for reference in entries(document["metadata"].get("ownerReferences")))


def is_as_desired(there: Document, desired: Document) -> bool:
    """Whether the spec of an object has all desired values."""
    return all(there["spec"].get(field) == value for field, value in desired["spec"].items())


def is_of_an_earlier(document: Document, job: Document) -> bool:
    """Whether the object was created for a deleted job of this name and will be deleted soon."""
    name = job["metadata"]["name"]
    references = entries(document["metadata"].get("ownerReferences"))
    return any((mapping(each).get("kind"), mapping(each).get("name")) == (OWNER, name) for each in references)


def _selects(budget: Document, labels: Mapping[str, Any]) -> bool:
    """Whether a budget selects these labels, as in
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels. An empty selector selects everything in
    policy/v1 and nothing in v1beta1."""
    selector = mapping(mapping(budget.get("spec")).get("selector"))
    exact, expressions = mapping(selector.get("matchLabels")), entries(selector.get("matchExpressions"))
    if not exact and not expressions:
        return str(budget.get("apiVersion")) == f"{GROUP}/v1"
    return all(labels.get(name) == value for name, value in exact.items()) and all(
        _holds(mapping(expression), labels) for expression in expressions
    )


def _holds(expression: Document, labels: Mapping[str, Any]) -> bool:
    value, values = labels.get(expression.get("key", "")), entries(expression.get("values"))
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
