"""Converts the fields that jobs of Kubeflow and KubeDL share: `runPolicy` and the fields of a role.

KubeDL and older versions have the fields of `runPolicy` in the spec itself.
"""

from __future__ import annotations

from copy import deepcopy

from outrider.cli.conversion.leaving import left_out
from outrider.master.core.faults.restart_policy import NEVER
from outrider.master.core.k8s.elasticjob import run_policy
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document

WHY = {
    "managedBy": run_policy.INSTEAD["managedBy"],
    "cacheBackend": "the pods must provide the data",
    "modelVersion": "the script must save its model",
    "mlflow": "the script must use the tracker itself",
    "cronPolicy": "use a CronJob that applies the document",
    "minMembers": "set minReplicas of a role, the smallest number of members with which the job trains",
}
"""What to do instead of a field of a job."""
CARRIED = (run_policy.CLEAN, run_policy.TTL, run_policy.DEADLINE)
MEANT = ("suspend", "backoffLimit", "schedulingPolicy")
FIELDS = ("runPolicy", *CARRIED, *MEANT)
WHY_SCHEDULING = {
    "minAvailable": "set minReplicas, the smallest number of members with which the job trains, and minMember "
    "of your PodGroup",
    "queue": "Outrider creates no PodGroup: set the queue in yours, or in a label of the template",
    "minResources": "Outrider creates no PodGroup: set it in yours",
    "scheduleTimeoutSeconds": "Outrider creates no PodGroup: set it in yours",
}
ROLE_FIELDS = ("replicas", "restartPolicy", "template")
WHY_ROLE = {
    "imagePullPolicy": "set it in the containers",
    "spotReplicaSpec": "all members of a role have the same template",
    "dependOn": "a job starts when minReplicas members are ready, in any order",
    "minReplicas": "set spec.elasticPolicy.minReplicas",
}


def policy(spec: Document, made: Document) -> list[str]:
    """Convert the run policy into our spec; returns notes about its other fields, but not about those of the spec."""
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
        return [f"{path}.backoffLimit: not converted: spec.elasticPolicy.maxRestarts limits the restarts."]
    made["maxRestarts"] = limit
    return [
        f"{path}.backoffLimit: converted to spec.maxRestarts, which limits in-place restarts; set restartLimit of a "
        f"role to limit how many failed pods of a rank index are replaced."
    ]


def _scheduling(given: Document, made: Document, path: str) -> list[str]:
    """Notes about the scheduling policy; the priority class of its PodGroup becomes that of the pods."""
    if name := given.get("priorityClass"):
        for each in made["replicaSpecs"].values():
            mapping(mapping(each.get("template")).get("spec")).setdefault("priorityClassName", name)
    return left_out(given, ("priorityClass",), WHY_SCHEDULING, path)


def role(given: Document, path: str, notes: list[str]) -> Document:
    notes += left_out(given, ROLE_FIELDS, WHY_ROLE, path)
    if given.get("restartPolicy") == NEVER:
        why = "the job fails with the first failed rank, also after running out of memory; OnFailure would retry"
        notes.append(f"{path}.restartPolicy: Never: {why}.")
    made = {field: deepcopy(given[field]) for field in ROLE_FIELDS if given.get(field) is not None}
    return {"replicas": 1, **made}
