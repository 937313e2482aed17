"""`migrationDir`: the directory for the state of scripts at planned moves, validated before the job starts.

On the container's own file system, or on a volume that is deleted with its pod, the state would be lost with the pod
that saved it. So the directory must be on a volume that outlives pods, mounted into the trainer and not read-only.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document

VARIABLE = "OUTRIDER_MIGRATION_DIR"
OF_THE_POD = ("emptyDir", "configMap", "secret", "downwardAPI", "projected", "ephemeral", "image", "gitRepo")
"""Kinds of volumes that are deleted with their pod or cannot be written."""


def objection(directory: object, spec: Document, container: Document) -> str:
    """What is wrong with the directory in this container; empty if it can be used."""
    if not isinstance(directory, str) or not PurePosixPath(directory).is_absolute():
        return "must be an absolute path in the trainer's container"
    found = _mount(PurePosixPath(directory), container)
    needs = "must be on a persistent volume that is mounted into the trainer"
    if found is None:
        return f"{needs}; it is on no volume"
    if found.get("readOnly"):
        return f"must be writable; volume {found.get('name')} is mounted read-only"
    volume = next((mapping(v) for v in entries(spec.get("volumes")) if mapping(v).get("name") == found.get("name")), {})
    kind = next((each for each in OF_THE_POD if each in volume), "")
    return f"{needs}; volume {found.get('name')} ({kind}) is deleted with its pod or read-only" if kind else ""


def _mount(directory: PurePosixPath, container: Document) -> Document | None:
    """The innermost mount that contains the directory; None if there is none."""
    mounts = [mapping(each) for each in entries(container.get("volumeMounts"))]
    holding = [m for m in mounts if directory.is_relative_to(str(m.get("mountPath") or "//"))]
    return max(holding, key=lambda m: len(str(m["mountPath"])), default=None)


def of_job(directory: str, job: str) -> str:
    """The folder of one job in the directory, which jobs may share."""
    return str(PurePosixPath(directory) / job)
