"""The PodDisruptionBudget of a job: a drain moves one member at a time.

An eviction is make before break: the member trains on while its replacement starts, and the next eviction waits for
that. Members that are not there and will not come (no room, no budget for another) do not count against it, or a job
that trains with three of four would hold a drain for ever. A job of one member never holds one.

`maxUnavailable` follows the job's size by itself, but the API server must find that size, by the scale subresource of
the pods' controller. An ElasticJob and a StatefulSet have one that counts all of their members. A Job and a lone pod
have none (the budget would let nobody go: "does not implement the scale subresource"), and a PyTorchJob's counts its
workers alone, as ours does where there is a master; there `minAvailable` is written as a number, and again whenever the
size changes.
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
"""Seconds for which a member must have been missing before a drain may take another one in spite of it: a replacement
is created at once, and is seen to find no room within a few."""


def api_version(group: Document) -> str | None:
    """Of the versions in which the server has PodDisruptionBudgets, the one to use: v1 since Kubernetes 1.21, v1beta1
    before 1.25. `group`: what /apis/policy says."""
    served = {str(mapping(version).get("version")) for version in entries(group.get("versions"))}
    return next((f"{GROUP}/{version}" for version in ("v1", "v1beta1") if version in served), None)


def budget_of(job: Document, version: str, lacking: int) -> Document:
    """`lacking`: members that are missing and are not expected."""
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
    """Of the two fields one; the other is null, so that a merge patch takes it off."""
    if _counts_by_itself(job):
        return {"maxUnavailable": 1 + lacking, "minAvailable": None}
    return {"maxUnavailable": None, "minAvailable": max(0, wanted(job) - lacking - 1)}


def _counts_by_itself(job: Document) -> bool:
    adopts = mapping(job["spec"].get("adopts"))
    return (not adopts and not has_master(job)) or adopts.get("kind") == "StatefulSet"


def _selected(job: Document) -> dict[str, str]:
    """Our own scale subresource counts workers. Another controller's roles are all counted by us."""
    labels = {JOB: str(job["metadata"]["name"])}
    return labels if job["spec"].get("adopts") or has_master(job) else labels | {ROLE: str(WORKER)}


def wanted(job: Document) -> int:
    return members(job)[2]


def lacking(job: Document, pods: Iterable[Document]) -> int:
    """Members that are wanted and have no pod that runs or may soon. A suspended job lacks nobody."""
    if job["spec"].get("suspend"):
        return 0
    there = [pod for pod in pods if not is_over(pod) and not pod["metadata"].get("deletionTimestamp")]
    roles = (WORKER, MASTER) if has_master(job) else (WORKER,)
    counted = [pod for pod in map(seen, there) if pod is not None and (job["spec"].get("adopts") or pod.role in roles)]
    return max(0, wanted(job) - sum(1 for pod in counted if not pod.unschedulable))


@dataclass(slots=True)
class Patience:
    """The smallest number of the last `SETTLED` seconds: fewer count at once, more only when they have lasted."""

    counted: int = 0
    _more: int = 0
    _since: float | None = None

    @property
    def is_settled(self) -> bool:
        """Nobody is missing whom the budget does not know of."""
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
    """Budgets of somebody else that hold pods of this job: the API server evicts no pod that two of them select."""
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
    """It was made for this job, and goes with it."""
    uid = job["metadata"]["uid"]
    return any(reference.get("uid") == uid for reference in entries(document["metadata"].get("ownerReferences")))


def is_as_wanted(there: Document, wanted: Document) -> bool:
    return all(there["spec"].get(field) == value for field, value in wanted["spec"].items())


def is_of_an_earlier(document: Document, job: Document) -> bool:
    """It was made for a job of this name that is deleted, and goes in a moment."""
    name = job["metadata"]["name"]
    references = entries(document["metadata"].get("ownerReferences"))
    return any((mapping(each).get("kind"), mapping(each).get("name")) == (OWNER, name) for each in references)


def _selects(budget: Document, labels: Mapping[str, Any]) -> bool:
    """As https://kubernetes.io/docs/concepts/overview/working-with-objects/labels reads a selector. An empty one
    selects everything in policy/v1 and nothing in v1beta1."""
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
