"""The injection: from a pod's document to that of the same pod with supervision (docs/adr/0001).

The trainer's container keeps its position, image, resources, probes, lifecycle and security context. A pod that cannot
be supervised, or that would behave differently, is not changed, and the reason is reported. Injecting a pod twice has
no further effect, because the API server calls a webhook again if another one has changed the pod.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

from outrider.master.core.k8s.injection import alone as injection_alone
from outrider.master.core.k8s.injection import neighbours
from outrider.master.core.k8s.injection import trainer as trainers
from outrider.master.core.k8s.injection.sidecar import (
    Policy,
    hooks_container,
    quality_of,
    resources_of,
    sidecar_container,
    volumes,
)
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods.rejections import objections
from outrider.master.core.k8s.pods.trainer_container import DEFAULT_CONTAINER, Chosen, chosen_of
from outrider.master.core.k8s.values.field_errors import too_long
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import (
    ALONE_AFTER,
    CONTAINER,
    HOOKS_CONTAINER,
    INJECTED,
    JOB,
    MODE,
    MOUNT,
    RANK_INDEX,
    ROLE,
    SIDECAR_CONTAINER,
    TOKEN_VOLUME,
    VOLUME,
    Document,
)

ANNOTATION_BYTES = 256 * 1024
"""The API server's maximum for all names and values of a pod's annotations together."""
WITH_HOST_NET = "ClusterFirstWithHostNet"
_KILL, _OF_PID_1 = re.compile(r"\bkill\b"), re.compile(r"[ \"]1\b")
DEFAULT_LOGS_CONTAINER = "kubectl.kubernetes.io/default-logs-container"


@dataclass(frozen=True, slots=True)
class Injection:
    """The result of injecting a pod."""

    pod: Document
    """The injected pod, or the given one if nothing was changed."""
    changed: bool
    refused: str
    """Why the pod was not injected; empty if it was."""
    explanation: tuple[str, ...]
    """Sentences about the trainer's container, the expected mode, the additions, and what would prevent supervision."""
    warnings: tuple[str, ...] = ()
    """Warnings about an injected pod that the user probably did not intend."""


def inject(pod: Document, place: Place, policy: Policy) -> Injection:
    """Injects a pod or a pod template, whose document is not changed."""
    if _is_injected(pod):
        return Injection(pod, False, "", (f"the pod is already injected: it has the annotation {INJECTED}",))
    rejected = next(objections(pod, place), "")
    if rejected:
        return passed_through(pod, rejected)
    spec, annotations = pod["spec"], mapping(mapping(pod.get("metadata")).get("annotations"))
    chosen = chosen_of(spec["containers"], place, annotations)
    mode = trainers.mode_of(spec["containers"][chosen.index], place)
    may = injection_alone.why_it_may(spec["containers"][chosen.index], annotations, place)
    place = replace(place, alone_after=policy.alone_after if may else None)
    new = deepcopy(pod)
    new["metadata"] = _metadata(mapping(new.get("metadata")), place, spec["containers"], chosen.index, mode)
    if (size := _bytes(new["metadata"]["annotations"])) > ANNOTATION_BYTES:
        why = too_long("metadata.annotations", ANNOTATION_BYTES, "bytes")
        return passed_through(pod, f"{why}; after the injection there are {size}")
    new["spec"] = _spec(new["spec"], place, policy, chosen.index)
    trainer = spec["containers"][chosen.index]
    warnings = (*trainers.doubts(spec["containers"], chosen, place), *neighbours.warnings(spec, trainer, annotations))
    explained = (*_explained(spec, place, policy, chosen, mode), _begins(place, may))
    return Injection(new, True, "", (*explained, *warnings), warnings)


def _is_injected(pod: Document) -> bool:
    """Whether any version has injected the pod: the annotation alone may be copied from another pod."""
    spec, notes = mapping(pod.get("spec")), mapping(mapping(pod.get("metadata")).get("annotations"))
    containers = (*entries(spec.get("initContainers")), *entries(spec.get("containers")))
    there = any(mapping(container).get("name") == SIDECAR_CONTAINER for container in containers)
    return there and notes.get(INJECTED) is not None


def passed_through(pod: Document, refused: str) -> Injection:
    """The result for a pod that is not injected, with the reason."""
    return Injection(pod, False, refused, (f"the pod is not injected: {refused}",))


def _bytes(annotations: Document) -> int:
    return sum(len(str(text).encode()) for entry in annotations.items() for text in entry)


# -- changes ------------------------------------------------------------------------------------------------------
def _metadata(metadata: Document, place: Place, containers: list[Document], index: int, mode: str) -> Document:
    labels = mapping(metadata.get("labels")) | {JOB: place.job, ROLE: place.role}
    if place.rank_index is not None:
        labels[RANK_INDEX] = str(place.rank_index)
    notes = mapping(metadata.get("annotations"))
    name = containers[index].get("name")
    defaults = {DEFAULT_CONTAINER: name, DEFAULT_LOGS_CONTAINER: name}
    notes = defaults | notes | {INJECTED: "1", MODE: mode, CONTAINER: name}  # a service mesh may come first
    notes.pop(ALONE_AFTER, None)
    if place.alone_after is not None:
        notes[ALONE_AFTER] = f"{place.alone_after:g}"
    return metadata | {"labels": labels, "annotations": notes}


def _spec(spec: Document, place: Place, policy: Policy, index: int) -> Document:
    """The spec with our containers: first among the init containers, so a native sidecar runs before the user's; last
    among the containers, so the trainer keeps its position."""
    containers, init = list(spec["containers"]), [hooks_container(spec, policy)]
    sidecar = sidecar_container(spec, place, policy)
    containers[index] = trainers.launched(containers[index], place)
    (init if policy.native_sidecar else containers).append(sidecar)
    names = {"dnsPolicy": WITH_HOST_NET} if _resolves_no_services(spec) else {}
    return (
        _with_secret(spec, policy)
        | names
        | {
            "shareProcessNamespace": True,
            "initContainers": [*init, *entries(spec.get("initContainers"))],
            "containers": containers,
            "volumes": [*entries(spec.get("volumes")), *volumes(place)],
        }
    )


def _resolves_no_services(spec: Document) -> bool:
    """Whether the pod cannot resolve the master's Service.

    In the node's network, ClusterFirst (the API server's default) means the node's resolver. Other policies stay.
    """
    return bool(spec.get("hostNetwork")) and spec.get("dnsPolicy") in (None, "", "ClusterFirst")


def _with_secret(spec: Document, policy: Policy) -> Document:
    """The spec with the pull secret after the user's: a kubelet tries them in order."""
    secrets = list(entries(spec.get("imagePullSecrets")))
    if not policy.pull_secret or any(mapping(each).get("name") == policy.pull_secret for each in secrets):
        return spec
    return spec | {"imagePullSecrets": [*secrets, {"name": policy.pull_secret}]}


# -- explanation --------------------------------------------------------------------------------------------------
def _explained(spec: Document, place: Place, policy: Policy, chosen: Chosen, mode: str) -> Iterator[str]:
    trainer = spec["containers"][chosen.index]
    rank = "no rank index: it is a spare until the master assigns one"
    rank = rank if place.rank_index is None else f"rank index {place.rank_index}"
    yield f"the pod has the role {place.role} in job {place.key}, with {rank}"
    if requested := ", ".join(_requested(place)):
        yield f"its annotations request {requested}"
    yield f"the trainer is the container {trainer.get('name')}: {chosen.reason}"
    yield f"the expected mode is {mode}"
    if trainers.has_command(trainer):
        yield f"added to the trainer: {trainers.LAUNCH} before its command, variables OUTRIDER_*, a mount at {MOUNT}"
    else:
        yield f"added to the trainer: variables OUTRIDER_*, PYTHONPATH, a mount at {MOUNT}"
        yield trainers.about_pythonpath(trainer, place)
    kind = "init container with restartPolicy Always" if policy.native_sidecar else "container"
    yield (
        f"added to the pod: init container {HOOKS_CONTAINER}, {kind} {SIDECAR_CONTAINER}, volumes {VOLUME} and "
        f"{TOKEN_VOLUME}, shareProcessNamespace"
    )
    if _resolves_no_services(spec):
        yield f"dnsPolicy becomes {WITH_HOST_NET}: with the node's resolver the master's Service would not be found"
    yield _about_quality(spec)
    yield from _what_would_prevent_it(spec, trainer)


def _begins(place: Place, may: str) -> str:
    if place.alone_after is None:
        return "if its sidecar cannot reach a master, the pod waits and logs the reason every minute"
    return f"if its sidecar cannot reach a master within {place.alone_after:g} s, it runs unsupervised: {may}"


def _requested(place: Place) -> Iterator[str]:
    if place.nproc is not None:
        yield f"{place.nproc} worker process{'es' * (place.nproc > 1)} a member"
    if place.max_restarts is not None:
        yield f"at most {place.max_restarts} restarts in place"
    if place.script:
        yield f"{place.script} as the script"
    if place.per_rank:
        yield "one command per worker process, unless the command is Python"


def _about_quality(spec: Document) -> str:
    quality, amounts = quality_of(spec), mapping(resources_of(spec).get("resources"))
    ours = [f"{what} {', '.join(f'{amount} of {name}' for name, amount in amounts[what].items())}"
            for what in ("requests", "limits") if amounts.get(what)]  # fmt: skip
    return f"the pod stays {quality}: our containers have {' and '.join(ours) or 'no requests and no limits'}"


def _what_would_prevent_it(spec: Document, trainer: Document) -> Iterator[str]:
    image = trainer.get("image") or "of the trainer"
    if trainers.has_command(trainer):
        yield f"without /bin/sh in the image {image} the container cannot start"
        yield f"without Python 3.8 or later in the image {image} the command runs unsupervised"
    else:
        yield (
            f"if the entrypoint of the image {image} is not Python, or is Python with -I, -E or -S, it runs "
            "unsupervised"
        )
    own = [trainer.get(field) for field in ("command", "args", "lifecycle", "livenessProbe", "readinessProbe")]
    if _names_pid_1(json.dumps(own)):
        yield "the trainer seems to use pid 1, which is the pause container's in the shared process namespace"
    if spec.get("restartPolicy") == "Never":
        yield "restartPolicy is Never: if the template or launcher dies, the whole pod fails and is replaced"


def _names_pid_1(text: str) -> bool:
    """Whether a command such as `kill -TERM 1` names pid 1.

    Each command is searched once: one regular expression for the whole text would start again at every `kill`.
    """
    for command in re.split("[;&|]", text):
        found = _KILL.search(command)
        if found is not None and _OF_PID_1.search(command, found.end()):
            return True
    return "/proc/1/" in text
