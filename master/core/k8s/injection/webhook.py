"""What the webhook makes of a pod: the same pod, supervised. Documents in, documents out (docs/adr/0001).

The trainer stays the user's: its place among the containers, image, resources, probes, lifecycle and security context
are as they were. A pod that cannot be supervised, or that would not mean the same afterwards, is passed through
untouched, with the reason. Injecting twice is injecting once: API servers ask a webhook again when another one has
changed the pod.
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
"""Of all names and values together: the API server stores no pod with more."""
WITH_HOST_NET = "ClusterFirstWithHostNet"
_KILL, _OF_PID_1 = re.compile(r"\bkill\b"), re.compile(r"[ \"]1\b")
DEFAULT_LOGS_CONTAINER = "kubectl.kubernetes.io/default-logs-container"


@dataclass(frozen=True, slots=True)
class Injection:
    pod: Document
    """A new one, or the one that was given where nothing is changed."""
    changed: bool
    refused: str
    """Why the pod is passed through untouched; empty where it is not."""
    explanation: tuple[str, ...]
    """Sentences: which container is the trainer, which mode is aimed at, what is added, what would stop it."""
    warnings: tuple[str, ...] = ()
    """What its user probably did not mean, though the pod is injected."""


def inject(pod: Document, place: Place, policy: Policy) -> Injection:
    """`pod` may be the template of one too; it is not changed."""
    if _is_injected(pod):
        return Injection(pod, False, "", (f"annotation {INJECTED} is there: the pod is injected already",))
    refused = next(objections(pod, place), "")
    if refused:
        return passed_through(pod, refused)
    spec, annotations = pod["spec"], mapping(mapping(pod.get("metadata")).get("annotations"))
    chosen = chosen_of(spec["containers"], place, annotations)
    mode = trainers.mode_of(spec["containers"][chosen.index], place)
    may = injection_alone.why_it_may(spec["containers"][chosen.index], annotations, place)
    place = replace(place, alone_after=policy.alone_after if may else None)
    new = deepcopy(pod)
    new["metadata"] = _metadata(mapping(new.get("metadata")), place, spec["containers"], chosen.index, mode)
    if (size := _bytes(new["metadata"]["annotations"])) > ANNOTATION_BYTES:
        return passed_through(pod, f"with ours its annotations have {size} bytes, and {ANNOTATION_BYTES} are allowed")
    new["spec"] = _spec(new["spec"], place, policy, chosen.index)
    trainer = spec["containers"][chosen.index]
    warnings = (*trainers.doubts(spec["containers"], chosen, place), *neighbours.warnings(spec, trainer, annotations))
    explained = (*_explained(spec, place, policy, chosen, mode), _begins(place, may))
    return Injection(new, True, "", (*explained, *warnings), warnings)


def _is_injected(pod: Document) -> bool:
    """By this version or another. The annotation alone, copied from a pod that was, is none."""
    spec, notes = mapping(pod.get("spec")), mapping(mapping(pod.get("metadata")).get("annotations"))
    containers = (*entries(spec.get("initContainers")), *entries(spec.get("containers")))
    there = any(mapping(container).get("name") == SIDECAR_CONTAINER for container in containers)
    return there and notes.get(INJECTED) is not None


def passed_through(pod: Document, refused: str) -> Injection:
    """Untouched, with the reason."""
    return Injection(pod, False, refused, (f"the pod is passed through untouched: {refused}",))


def _bytes(annotations: Document) -> int:
    return sum(len(str(text).encode()) for entry in annotations.items() for text in entry)


# -- what is made -------------------------------------------------------------------------------------------------
def _metadata(metadata: Document, place: Place, containers: list[Document], index: int, mode: str) -> Document:
    labels = mapping(metadata.get("labels")) | {JOB: place.job, ROLE: place.role}
    if place.rank_index is not None:
        labels[RANK_INDEX] = str(place.rank_index)
    notes = mapping(metadata.get("annotations"))
    name = containers[index].get("name")
    defaults = {DEFAULT_CONTAINER: name, DEFAULT_LOGS_CONTAINER: name}
    notes = defaults | notes | {INJECTED: "1", MODE: mode, CONTAINER: name}  # others may put theirs before it
    notes.pop(ALONE_AFTER, None)
    if place.alone_after is not None:
        notes[ALONE_AFTER] = f"{place.alone_after:g}"
    return metadata | {"labels": labels, "annotations": notes}


def _spec(spec: Document, place: Place, policy: Policy, index: int) -> Document:
    """Ours come first among the init containers, so that a native sidecar runs before any of the user's; last among
    the containers, so that the trainer keeps its place."""
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
    """On its node's network ClusterFirst, which the API server writes where nothing is said, means the node's resolver;
    the master is a Service. Any other is meant as it is."""
    return bool(spec.get("hostNetwork")) and spec.get("dnsPolicy") in (None, "", "ClusterFirst")


def _with_secret(spec: Document, policy: Policy) -> Document:
    """The user's own come first: a kubelet tries them in their order."""
    secrets = list(entries(spec.get("imagePullSecrets")))
    if not policy.pull_secret or any(mapping(each).get("name") == policy.pull_secret for each in secrets):
        return spec
    return spec | {"imagePullSecrets": [*secrets, {"name": policy.pull_secret}]}


# -- why ----------------------------------------------------------------------------------------------------------
def _explained(spec: Document, place: Place, policy: Policy, chosen: Chosen, mode: str) -> Iterator[str]:
    trainer = spec["containers"][chosen.index]
    rank = "no rank index: a spare, until the master gives it one"
    rank = rank if place.rank_index is None else f"rank index {place.rank_index}"
    yield f"the pod is a {place.role} of the job {place.key}, with {rank}"
    if asked := ", ".join(_asked(place)):
        yield f"its annotations ask for {asked}"
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
        yield f"its dnsPolicy becomes {WITH_HOST_NET}: on its node's network it would not find the master's Service"
    yield _about_quality(spec)
    yield from _what_would_stop_it(spec, trainer)


def _begins(place: Place, may: str) -> str:
    if place.alone_after is None:
        return "where its sidecar reaches no master it waits for one, and its log says so each minute"
    return f"where its sidecar reaches no master in {place.alone_after:g} s it runs as without us: {may}"


def _asked(place: Place) -> Iterator[str]:
    if place.nproc is not None:
        yield f"{place.nproc} worker process{'es' * (place.nproc > 1)} a member"
    if place.max_restarts is not None:
        yield f"at most {place.max_restarts} restarts in place"
    if place.script:
        yield f"{place.script} as the script"
    if place.per_rank:
        yield "the command once per worker process, where it is no Python"


def _about_quality(spec: Document) -> str:
    quality, amounts = quality_of(spec), mapping(resources_of(spec).get("resources"))
    said = [f"{what} {', '.join(f'{amount} of {name}' for name, amount in amounts[what].items())}"
            for what in ("requests", "limits") if amounts.get(what)]  # fmt: skip
    return f"the pod stays {quality}: our containers have {' and '.join(said) or 'no requests and no limits'}"


def _what_would_stop_it(spec: Document, trainer: Document) -> Iterator[str]:
    image = trainer.get("image") or "of the trainer"
    if trainers.has_command(trainer):
        yield f"what would stop it: no /bin/sh in the image {image}: then the container cannot start"
        yield f"what would stop it: no Python from 3.8 on in the image {image}: then the command runs as without us"
    else:
        yield f"what would stop it: an entrypoint of the image {image} that is no Python, or one with -I, -E, -S"
    own = [trainer.get(field) for field in ("command", "args", "lifecycle", "livenessProbe", "readinessProbe")]
    if _names_pid_1(json.dumps(own)):
        yield "what changes: pid 1, which the trainer seems to name, is the pause container's in a shared namespace"
    if spec.get("restartPolicy") == "Never":
        yield "restartPolicy is Never: where the template or launcher dies, the whole pod has failed and is replaced"


def _names_pid_1(text: str) -> bool:
    """In a command of its own, as `kill -TERM 1`. One look at each: an expression for all of it would begin anew at
    every `kill`."""
    for command in re.split("[;&|]", text):
        found = _KILL.search(command)
        if found is not None and _OF_PID_1.search(command, found.end()):
            return True
    return "/proc/1/" in text
