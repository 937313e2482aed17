"""`migrationDir`: where a script's state is kept for planned moves, checked before anything starts.

A directory in the container's own file system, or on a volume that goes with the pod, would lose the state with the pod
it was saved from. So it has to lie on a volume that outlives pods, mounted into the trainer and not read-only.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document

VARIABLE = "OUTRIDER_MIGRATION_DIR"
OF_THE_POD = ("emptyDir", "configMap", "secret", "downwardAPI", "projected", "ephemeral", "image", "gitRepo")
"""Kinds of volumes that end with their pod, or cannot be written."""


def objection(directory: object, spec: Document, container: Document) -> str:
    """Why it will not do in this container of this pod, "" where it will."""
    if not isinstance(directory, str) or not PurePosixPath(directory).is_absolute():
        return f"{directory!r} must be an absolute path in the trainer's container"
    found = _mount(PurePosixPath(directory), container)
    needs = "a planned move needs a directory on a persistent volume of yours, mounted into the trainer"
    if found is None:
        return f"{directory} lies on no volume: {needs}"
    if found.get("readOnly"):
        return f"{directory} lies on volume {found.get('name')}, which is mounted read-only"
    volume = next((mapping(v) for v in entries(spec.get("volumes")) if mapping(v).get("name") == found.get("name")), {})
    kind = next((each for each in OF_THE_POD if each in volume), "")
    return (
        f"{directory} lies on volume {found.get('name')}, an {kind}, which ends with its pod: {needs}" if kind else ""
    )


def _mount(directory: PurePosixPath, container: Document) -> Document | None:
    """The innermost that holds it."""
    mounts = [mapping(each) for each in entries(container.get("volumeMounts"))]
    holding = [m for m in mounts if directory.is_relative_to(str(m.get("mountPath") or "//"))]
    return max(holding, key=lambda m: len(str(m["mountPath"])), default=None)


def of_job(directory: str, job: str) -> str:
    """Jobs may share a directory: each has a folder of its own."""
    return str(PurePosixPath(directory) / job)
