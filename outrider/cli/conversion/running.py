"""What jobs of Kubeflow and KubeDL have in common. They have `runPolicy`, whose fields KubeDL and older versions have
in the spec itself, and the fields of a role."""

from __future__ import annotations

from copy import deepcopy

from outrider.cli.conversion.leaving import left_out
from outrider.master.core.faults.restart_policy import NEVER
from outrider.master.core.k8s.elasticjob import run_policy
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document

WHY = {
    "managedBy": run_policy.INSTEAD["managedBy"],
    "cacheBackend": "data is the pods' own affair",
    "modelVersion": "a model is the script's own affair",
    "mlflow": "a tracker is the script's own affair",
    "cronPolicy": "a CronJob that applies the document runs it by the clock",
    "minMembers": "minReplicas of a role is the least that the job trains with",
}
"""Of fields of a job: what to do instead."""
CARRIED = (run_policy.CLEAN, run_policy.TTL, run_policy.DEADLINE)
MEANT = ("suspend", "backoffLimit", "schedulingPolicy")
FIELDS = ("runPolicy", *CARRIED, *MEANT)
WHY_SCHEDULING = {
    "minAvailable": "minReplicas is the least that the job trains with, and minMember of a PodGroup of yours",
    "queue": "Outrider makes no PodGroup: name the queue in yours, or in a label of the template",
    "minResources": "Outrider makes no PodGroup: it belongs into yours",
    "scheduleTimeoutSeconds": "Outrider makes no PodGroup: it belongs into yours",
}
ROLE_FIELDS = ("replicas", "restartPolicy", "template")
WHY_ROLE = {
    "imagePullPolicy": "it belongs to a container",
    "spotReplicaSpec": "all members of a role have one template",
    "dependOn": "a job begins when its least members are ready, in whatever order",
    "minReplicas": "spec.elasticPolicy.minReplicas says it",
}


def policy(spec: Document, made: Document) -> list[str]:
    """Puts into our spec what it says, and tells the rest; other fields of the spec itself are the caller's to name."""
    run = {field: spec[field] for field in (*CARRIED, *MEANT) if spec.get(field) is not None}
    run |= {field: value for field, value in mapping(spec.get("runPolicy")).items() if value is not None}
    path = "spec.runPolicy" if spec.get("runPolicy") else "spec"
    if carried := {field: run[field] for field in CARRIED if field in run}:
        made["runPolicy"] = carried
    if run.get("suspend") is True:
        made["suspend"] = True
    notes = left_out(run, (*CARRIED, *MEANT), WHY, path)
    notes += _restarts(run.get("backoffLimit"), made, path)
    return notes + _scheduling(mapping(run.get("schedulingPolicy")), made, f"{path}.schedulingPolicy")


def _restarts(limit: object, made: Document, path: str) -> list[str]:
    if limit is None:
        return []
    if mapping(made.get("elasticPolicy")).get("maxRestarts") is not None:
        return [f"{path}.backoffLimit: left out: spec.elasticPolicy.maxRestarts says how many restarts there may be."]
    made["maxRestarts"] = limit
    return [
        f"{path}.backoffLimit: it is spec.maxRestarts, the restarts in place; restartLimit of a role says how many "
        f"failed pods of a rank index are replaced."
    ]


def _scheduling(given: Document, made: Document, path: str) -> list[str]:
    """The class of its PodGroup is that of its pods here."""
    if name := given.get("priorityClass"):
        for each in made["replicaSpecs"].values():
            mapping(mapping(each.get("template")).get("spec")).setdefault("priorityClassName", name)
    return left_out(given, ("priorityClass",), WHY_SCHEDULING, path)


def role(given: Document, path: str, notes: list[str]) -> Document:
    notes += left_out(given, ROLE_FIELDS, WHY_ROLE, path)
    if given.get("restartPolicy") == NEVER:
        why = "the first rank that fails ends the job, for its memory too; OnFailure has it tried again"
        notes.append(f"{path}.restartPolicy: Never: {why}.")
    made = {field: deepcopy(given[field]) for field in ROLE_FIELDS if given.get(field) is not None}
    return {"replicas": 1, **made}
