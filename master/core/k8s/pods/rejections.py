"""What speaks against supervising a pod: sentences that begin with the path of the field.

The webhook passes such a pod through, `outrider inject` says so, and an ElasticJob with such a template is refused when
it is applied: its pods would be refused one by one, where nobody looks.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core import quantities
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods import migration_dir
from outrider.master.core.k8s.pods.containers import memory_limit
from outrider.master.core.k8s.pods.trainer_container import chosen_of
from outrider.master.core.k8s.values.fields import entries, mapping, shown
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
    """All of them, the weightiest first; `pod` may have any shape."""
    spec, notes = mapping(pod.get("spec")), mapping(mapping(pod.get("metadata")).get("annotations"))
    containers = entries(spec.get("containers"))
    malformed = list(_malformed(spec)) if containers else ["spec.containers: there is none"]
    yield from malformed
    if malformed:
        return
    if STATIC_POD in notes:
        yield (
            "metadata.annotations: it is a static pod: its kubelet runs it as a file says, whatever the API server is "
            "told"
        )
    yield from _of_the_pod(spec)
    yield from _names_of_ours(spec)
    chosen = chosen_of(containers, place, notes)
    if chosen.refused:
        yield f"spec.containers: {chosen.refused}"
    else:
        trainer = containers[chosen.index]
        yield from _taken(f"spec.containers[{chosen.index}]", trainer)
        if place.migration_dir and (wrong := migration_dir.objection(place.migration_dir, spec, trainer)):
            yield f"annotation {MIGRATION_DIR} (migrationDir of an ElasticJob): {wrong}"
        if wrong := _of_checkpoint_memory(place.checkpoint_memory, place.checkpoint_path, trainer):
            yield wrong


def _of_checkpoint_memory(size: int, path: str, container: Document) -> str:
    """Why this container cannot give so many bytes; empty where it can."""
    if path and not size:
        return (
            f"annotation {CHECKPOINT_PATH} (checkpointPath of an ElasticJob): saves to {path} are kept in memory, and "
            f"none was declared; say checkpointMemory (annotation {CHECKPOINT_MEMORY}), as 2Gi, too"
        )
    name = container.get("name", "")
    limit = memory_limit({"spec": {"containers": [container]}}, name)
    if not limit or size < limit:
        return ""
    return (
        f"annotation {CHECKPOINT_MEMORY} (checkpointMemory of an ElasticJob): {quantities.written(size)} is all the "
        f"memory that the trainer's container {name} may use ({quantities.written(limit)}), and its checkpoints are in "
        f"it; ask for less, or raise resources.limits.memory"
    )


def _of_the_pod(spec: Document) -> Iterator[str]:
    if field := _of_windows(spec):
        yield f"{field}: it is a Windows pod, and the hooks and the sidecar are for Linux"
    if spec.get("hostPID"):
        yield "spec.hostPID: it is true, and with the processes of the node in sight those of the pod cannot be shared"
    if spec.get("shareProcessNamespace") is False:
        yield (
            "spec.shareProcessNamespace: it is false, and without it the sidecar cannot watch the trainer's processes; "
            "leave it out, or set it to true"
        )


def _of_windows(spec: Document) -> str:
    """The field that says so; empty where none does."""
    selector = mapping(spec.get("nodeSelector"))
    if mapping(spec.get("os")).get("name") == "windows":
        return "spec.os.name"
    if "windows" in (selector.get("kubernetes.io/os"), selector.get("beta.kubernetes.io/os")):
        return "spec.nodeSelector"
    return "spec.securityContext" if mapping(spec.get("securityContext")).get("windowsOptions") else ""


# -- shapes -------------------------------------------------------------------------------------------------------
def _malformed(spec: Document) -> Iterator[str]:
    """What the API server would not store: a file may say it all the same."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(entries(spec.get(kind))):
            path = f"spec.{kind}[{index}]"
            if not isinstance(container, dict):
                yield f"{path}: it must be an object with name and image"
            elif not isinstance(container.get("name", ""), str):
                yield f"{path}.name: it must be text"
            else:
                yield from _lists(path, container)
    if not all(isinstance(volume, dict) for volume in entries(spec.get("volumes"))):
        yield "spec.volumes: each entry must be an object"


def _lists(path: str, container: Document) -> Iterator[str]:
    for field in ("command", "args", "env", "volumeMounts"):
        if not isinstance(container.get(field) or [], list):
            yield f"{path}.{field}: it must be a list"
    for field in ("command", "args"):
        for index, word in enumerate(entries(container.get(field))):
            if not isinstance(word, str):
                yield f"{path}.{field}[{index}]: {shown(word)} must be text, in quotes"
    for field, key in (("env", "name"), ("volumeMounts", "mountPath")):
        for index, entry in enumerate(entries(container.get(field))):
            if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
                yield f"{path}.{field}: each entry must be an object with a {key} that is text"
            elif field == "env" and not isinstance(entry.get("value") or "", str):
                yield f"{path}.env[{index}].value: {shown(entry['value'])} must be text, in quotes"


# -- names of ours ------------------------------------------------------------------------------------------------
def _names_of_ours(spec: Document) -> Iterator[str]:
    for kind, what, ours in (
        ("initContainers", "container", (HOOKS_CONTAINER, SIDECAR_CONTAINER)),
        ("containers", "container", (HOOKS_CONTAINER, SIDECAR_CONTAINER)),
        ("volumes", "volume", (VOLUME, TOKEN_VOLUME)),
    ):
        for index, entry in enumerate(entries(spec.get(kind))):
            if entry.get("name") in ours:
                yield f"spec.{kind}[{index}].name: it has a {what} {entry['name']} of its own: another name is needed"


def _taken(path: str, trainer: Document) -> Iterator[str]:
    """Names in the trainer's container that are ours."""
    for index, entry in enumerate(entries(trainer.get("env"))):
        if entry.get("name") in RESERVED:
            yield (
                f"{path}.env[{index}].name: its container {trainer.get('name')} sets {entry['name']} itself: is it "
                f"supervised by hand already?"
            )
    for index, mounted in enumerate(entries(trainer.get("volumeMounts"))):
        mount = str(mounted.get("mountPath") or "").rstrip("/")
        if mount == MOUNT or mount.startswith(f"{MOUNT}/"):
            yield (
                f"{path}.volumeMounts[{index}].mountPath: its container {trainer.get('name')} has a mount at {mount}, "
                f"where the hooks' volume comes"
            )
