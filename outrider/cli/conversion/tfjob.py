"""TFJobs of Kubeflow and KubeDL: jobs with parameter servers, which have the same roles and TF_CONFIG here.

Workers without parameter servers (MultiWorkerMirroredStrategy) are an ordinary job, in which the ranks make their own
TF_CONFIG when they look it up: of one worker a rank, so a chief beside them has no counterpart.
"""

from __future__ import annotations

from outrider.cli.conversion import running
from outrider.cli.conversion.leaving import filled, left_out, with_trainer
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document

ROLES = {each: each for each in ("ps", "worker", "chief", "evaluator")} | {"master": "chief", "eval": "evaluator"}
SPECS = "tfReplicaSpecs"
WHY = {
    "successPolicy": "a job has succeeded when its chief has, without a chief when all workers have",
    "enableDynamicWorker": "maxReplicas of the workers says how many there may ever be",
}


def converted(spec: Document) -> tuple[Document, list[str]]:
    given = {str(role): mapping(value) for role, value in mapping(spec.get(SPECS)).items()}
    notes: list[str] = []
    unknown = sorted(role for role in given if role.lower() not in ROLES)
    if not given or unknown:
        named = f"there is no role {unknown[0]}" if unknown else "it is missing"
        raise ValueError(f"spec.{SPECS}: {named}; a TFJob has PS, Worker, Chief and Evaluator")
    kept = filled(given, f"spec.{SPECS}", notes)
    has_ps = any(ROLES[name.lower()] == "ps" for name in kept)
    if not has_ps and (len(kept) > 1 or "evaluator" in (ROLES[name.lower()] for name in kept)):
        raise ValueError(
            f"spec.{SPECS}: there is no PS, and without one TF_CONFIG has only workers here, the first of which is the "
            f"chief; a job of MultiWorkerMirroredStrategy has Worker alone"
        )
    made = {}
    for name, role in kept.items():
        ours = running.role(role, f"spec.{SPECS}.{name}", notes)
        ours["template"] = with_trainer(mapping(ours.get("template")), "tensorflow")
        made[ROLES[name.lower()] if has_ps else "worker"] = ours
    notes += left_out(spec, (SPECS, *running.FIELDS), {**running.WHY, **WHY}, "spec")
    whole_spec: Document = {"replicaSpecs": made}
    notes += running.policy(spec, whole_spec)
    return whole_spec, notes
