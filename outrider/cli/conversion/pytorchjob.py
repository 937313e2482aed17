"""Converts PyTorchJobs of KubeDL (training.kubedl.io) and Kubeflow (kubeflow.org).

An ElasticJob has the same roles, elasticPolicy and restart policies (`k8s/values/pytorch_fields.py`), so these stay
unchanged, except for fields that Outrider would report as ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.cli.conversion import launchers, running, variables
from outrider.cli.conversion.leaving import filled, left_out, with_trainer
from outrider.master.core.k8s.elasticjob import pytorch_objections
from outrider.master.core.k8s.values import pytorch_fields
from outrider.master.core.k8s.values.fields import entries, mapping, whole
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.spec import MASTER

SPECS = pytorch_fields.THEIR_ROLES
TAKEN = (SPECS, "elasticPolicy", *running.FIELDS)


def of_kubedl(spec: Document) -> tuple[Document, list[str]]:
    made, notes = _converted(spec, (*TAKEN, "enableElastic"))
    if isinstance(spec.get("enableElastic"), bool):
        made["enableElastic"] = spec["enableElastic"]
    return made, [*notes, *(remark for remark in pytorch_objections.remarks({"spec": made}))]


def of_kubeflow(spec: Document) -> tuple[Document, list[str]]:
    made, notes = _converted(spec, (*TAKEN, "nprocPerNode"))
    given = spec.get("nprocPerNode")
    number = int(given) if isinstance(given, str) and given.isdigit() else given
    if whole(number) is not None:
        made["nprocPerNode"] = number
    elif given is not None:
        notes.append(
            f"spec.nprocPerNode: {given} is known only in the running pod: set spec.nprocPerNode, or use torchrun's "
            f"--nproc-per-node."
        )
    return made, notes


def _converted(spec: Document, taken: tuple[str, ...]) -> tuple[Document, list[str]]:
    notes: list[str] = []
    given = {str(role): mapping(value) for role, value in mapping(spec.get(SPECS)).items()}
    unknown = sorted(role for role in given if role.lower() not in ("master", "worker"))
    if not given or unknown:
        is_old = isinstance(spec.get("replicaSpecs"), list)
        if unknown:
            raise ValueError(f'spec.{SPECS}: Unsupported value: "{unknown[0]}": supported values: "Master", "Worker"')
        hint = "; rename replicaSpecs of v1alpha1 to it" if is_old else ""
        raise ValueError(f"spec.{SPECS}: Required value: must have Master or Worker{hint}")
    roles = filled(given, f"spec.{SPECS}", notes)
    has_master = any(name.lower() == MASTER for name in roles)
    unset = variables.OF_PYTORCHJOBS if has_master else variables.OF_WORKERS_ALONE
    made: Document = {
        "replicaSpecs": {
            name.lower(): _role(role, f"spec.{SPECS}.{name}", unset, notes) for name, role in roles.items()
        }
    }
    policy = mapping(spec.get("elasticPolicy"))
    known = {field: value for field, value in policy.items() if field in pytorch_fields.FOLLOWED}
    if known:
        made["elasticPolicy"] = known
    notes += pytorch_objections.remarks({"spec": {"elasticPolicy": policy}})
    notes += left_out(spec, taken, running.WHY, "spec")
    notes += running.policy(spec, made)
    return made, notes


def _role(given: Document, path: str, unset: Mapping[str, str], notes: list[str]) -> Document:
    made = running.role(given, path, notes)
    template = made["template"] = with_trainer(mapping(made.get("template")), "pytorch")
    pod = mapping(template.get("spec"))
    for number, container in enumerate(entries(pod.get("containers"))):
        at = f"{path}.template.spec.containers[{number}]"
        changed, found = launchers.rewritten(mapping(container), at)
        pod["containers"][number] = changed
        notes += found.notes
        notes += variables.unset(changed, at, unset)
    return made
