"""Converts TFJobs of Kubeflow and KubeDL: jobs with parameter servers, with the same roles and TF_CONFIG.

Workers without parameter servers (MultiWorkerMirroredStrategy) become an ordinary job, in which each rank builds its
own TF_CONFIG when it reads it. This has one worker per rank, so an extra chief has no counterpart.
"""

from __future__ import annotations

from outrider.cli.conversion import running
from outrider.cli.conversion.leaving import filled, left_out, with_trainer
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document

ROLES = {each: each for each in ("ps", "worker", "chief", "evaluator")} | {"master": "chief", "eval": "evaluator"}
SPECS = "tfReplicaSpecs"
WHY = {
    "successPolicy": "a job succeeds when its chief succeeds; without a chief, when all workers succeed",
    "enableDynamicWorker": "set maxReplicas of the workers to their maximum number",
}


def converted(spec: Document) -> tuple[Document, list[str]]:
    given = {str(role): mapping(value) for role, value in mapping(spec.get(SPECS)).items()}
    notes: list[str] = []
    unknown = sorted(role for role in given if role.lower() not in ROLES)
    if not given or unknown:
        supported = '"PS", "Worker", "Chief", "Evaluator"'
        wrong = f'Unsupported value: "{unknown[0]}": supported values: {supported}' if unknown else "Required value"
        raise ValueError(f"spec.{SPECS}: {wrong}")
    kept = filled(given, f"spec.{SPECS}", notes)
    has_ps = any(ROLES[name.lower()] == "ps" for name in kept)
    if not has_ps and (len(kept) > 1 or "evaluator" in (ROLES[name.lower()] for name in kept)):
        raise ValueError(
            f"spec.{SPECS}: Forbidden: without PS, only Worker is allowed (MultiWorkerMirroredStrategy); the first "
            f"worker is the chief in TF_CONFIG"
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
