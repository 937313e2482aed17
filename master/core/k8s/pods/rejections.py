"""The field errors of a pod that cannot be supervised.

The webhook does not inject such a pod, and `outrider inject` reports the error. An ElasticJob with such a template is
refused when it is applied: otherwise its pods would be rejected one by one, where the user does not look.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core import quantities
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods import migration_dir
from outrider.master.core.k8s.pods.containers import memory_limit
from outrider.master.core.k8s.pods.trainer_container import chosen_of
from outrider.master.core.k8s.values.field_errors import forbidden, invalid, required
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import (
    CHECKPOINT_MEMORY,
    CHECKPOINT_PATH,
    HOOKS_CONTAINER,
    MIGRATION_DIR,
    MOUNT,
    RESERVED,
    SIDECAR_CONTAINER,
    TOKEN_VOLUME,
    VOLUME,
    Document,
)

STATIC_POD = "kubernetes.io/config.mirror"


def objections(pod: Document, place: Place) -> Iterator[str]:
    """All field errors of a pod of any shape, the most important first."""
    spec, notes = mapping(pod.get("spec")), mapping(mapping(pod.get("metadata")).get("annotations"))
    containers = entries(spec.get("containers"))
    malformed = list(_malformed(spec)) if containers else [required("spec.containers")]
    yield from malformed
    if malformed:
        return
    if STATIC_POD in notes:
        yield forbidden(
            f"metadata.annotations[{STATIC_POD}]", "the kubelet runs a static pod from a file, so it cannot be injected"
        )
    yield from _of_the_pod(spec)
    yield from _names_of_ours(spec)
    chosen = chosen_of(containers, place, notes)
    if chosen.refused:
        yield chosen.refused
    else:
        trainer = containers[chosen.index]
        yield from _taken(f"spec.containers[{chosen.index}]", trainer)
        if place.migration_dir and (wrong := migration_dir.objection(place.migration_dir, spec, trainer)):
            yield invalid(f"{_noted(MIGRATION_DIR)}", place.migration_dir, f"{wrong} (ElasticJob: spec.migrationDir)")
        if wrong := _of_checkpoint_memory(place.checkpoint_memory, place.checkpoint_path, trainer):
            yield wrong


def _of_checkpoint_memory(size: int, path: str, container: Document) -> str:
    """The field error if the container cannot have this much checkpoint memory; empty if it can."""
    if path and not size:
        return required(
            _noted(CHECKPOINT_MEMORY),
            f"saves to {CHECKPOINT_PATH} {path} are stored in memory; set the size of that memory, for example "
            f"2Gi (ElasticJob: spec.checkpointMemory for spec.checkpointPath)",
        )
    name = container.get("name", "")
    limit = memory_limit({"spec": {"containers": [container]}}, name)
    if not limit or size < limit:
        return ""
    return invalid(
        _noted(CHECKPOINT_MEMORY),
        quantities.written(size),
        f"must be less than the memory limit of the trainer's container {name} ({quantities.written(limit)}), which "
        f"includes the checkpoints; lower it or raise resources.limits.memory (ElasticJob: spec.checkpointMemory)",
    )


def _noted(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


def _of_the_pod(spec: Document) -> Iterator[str]:
    if field := _of_windows(spec):
        yield forbidden(field, "it makes this a Windows pod; the hooks and the sidecar need Linux")
    if spec.get("hostPID"):
        yield invalid("spec.hostPID", True, "must be false, because the sidecar needs shareProcessNamespace instead")
    if spec.get("shareProcessNamespace") is False:
        why = "must be true or unset, so that the sidecar can watch the trainer's processes"
        yield invalid("spec.shareProcessNamespace", False, why)


def _of_windows(spec: Document) -> str:
    """The field that makes this a Windows pod; empty if none does."""
    selector = mapping(spec.get("nodeSelector"))
    if mapping(spec.get("os")).get("name") == "windows":
        return "spec.os.name"
    if "windows" in (selector.get("kubernetes.io/os"), selector.get("beta.kubernetes.io/os")):
        return "spec.nodeSelector"
    return "spec.securityContext" if mapping(spec.get("securityContext")).get("windowsOptions") else ""


# -- shapes -------------------------------------------------------------------------------------------------------
def _malformed(spec: Document) -> Iterator[str]:
    """Field errors for what the API server would refuse, but a file may have."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(entries(spec.get(kind))):
            path = f"spec.{kind}[{index}]"
            if not isinstance(container, dict):
                yield invalid(path, container, "must be an object with name and image")
            elif not isinstance(container.get("name", ""), str):
                yield invalid(f"{path}.name", container["name"], "must be a string")
            else:
                yield from _lists(path, container)
    if not all(isinstance(volume, dict) for volume in entries(spec.get("volumes"))):
        yield invalid("spec.volumes", spec["volumes"], "each entry must be an object")


def _lists(path: str, container: Document) -> Iterator[str]:
    for field in ("command", "args", "env", "volumeMounts"):
        if not isinstance(container.get(field) or [], list):
            yield invalid(f"{path}.{field}", container[field], "must be a list")
    for field in ("command", "args"):
        for index, word in enumerate(entries(container.get(field))):
            if not isinstance(word, str):
                yield invalid(f"{path}.{field}[{index}]", word, "must be a string; put it in quotes")
    for field, key in (("env", "name"), ("volumeMounts", "mountPath")):
        for index, entry in enumerate(entries(container.get(field))):
            if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
                yield invalid(f"{path}.{field}[{index}]", entry, f"must be an object whose {key} is a string")
            elif field == "env" and not isinstance(entry.get("value") or "", str):
                yield invalid(f"{path}.env[{index}].value", entry["value"], "must be a string; put it in quotes")


# -- names of ours ------------------------------------------------------------------------------------------------
def _names_of_ours(spec: Document) -> Iterator[str]:
    for kind, what, ours in (
        ("initContainers", "container", (HOOKS_CONTAINER, SIDECAR_CONTAINER)),
        ("containers", "container", (HOOKS_CONTAINER, SIDECAR_CONTAINER)),
        ("volumes", "volume", (VOLUME, TOKEN_VOLUME)),
    ):
        for index, entry in enumerate(entries(spec.get(kind))):
            if entry.get("name") in ours:
                yield forbidden(f"spec.{kind}[{index}].name", f"{entry['name']} is the name of an injected {what}")


def _taken(path: str, trainer: Document) -> Iterator[str]:
    """Field errors for variables and mounts of the trainer's container that the injection adds."""
    for index, entry in enumerate(entries(trainer.get("env"))):
        if entry.get("name") in RESERVED:
            yield forbidden(
                f"{path}.env[{index}].name",
                f"the injection sets {entry['name']}; is container {trainer.get('name')} supervised by hand already?",
            )
    for index, mounted in enumerate(entries(trainer.get("volumeMounts"))):
        mount = str(mounted.get("mountPath") or "").rstrip("/")
        if mount == MOUNT or mount.startswith(f"{MOUNT}/"):
            yield invalid(
                f"{path}.volumeMounts[{index}].mountPath",
                mount,
                f"must not be in {MOUNT}, the mount of the hooks' volume",
            )
