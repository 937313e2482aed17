"""Laws that hold for whatever pod the API server may ask about, and for whatever a file may say that is none."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core.k8s.injection.sidecar import Policy, quality_of
from outrider.master.core.k8s.injection.webhook import inject
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.webhook.http import differences
from tests.integration.kubernetes.cluster_double import patched

POLICY = Policy("outrider/sidecar:1", "IfNotPresent", "tcp://outrider-master.outrider-system.svc:7070", "k" * 40)
PLACE = Place("gpt", "research", "worker")
LAUNCH = "/outrider/hooks/outrider-launch"
CHANGED = {"command", "env", "volumeMounts"}
"""Of the trainer."""
ADDED_TO = {"initContainers", "containers", "volumes", "shareProcessNamespace"}
"""Of the pod's spec, and dnsPolicy where it is on its node's network."""

# -- pods as the API server takes them ----------------------------------------------------------------------------
TEXT = st.text("abc/:$() =1\n", max_size=6)
NAMES = st.sampled_from(["A", "PYTHONPATH", "RANK", "OUTRIDER_NPROC", "OUTRIDER_ATOMIC_SAVE"])
SECRET = {"secretKeyRef": {"name": "paths", "key": "python"}}
ENV = st.lists(
    st.builds(lambda name, value: {"name": name, "value": value}, NAMES, TEXT)
    | st.builds(lambda name: {"name": name, "valueFrom": SECRET}, NAMES),
    max_size=4,
)
QUANTITIES = st.sampled_from(["1", "500m", "0", "1Gi", 1, 0.5])
RESOURCES = st.dictionaries(
    st.sampled_from(["limits", "requests"]),
    st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "ephemeral-storage"]), QUANTITIES),
)
PROBE = st.sampled_from([{"tcpSocket": {"port": 1}}, {"exec": {"command": ["kill", "-0", "1"]}}, {"httpGet": {}}])
CONTAINER = st.fixed_dictionaries(
    {"image": st.just("i")},
    optional={
        "command": st.lists(st.sampled_from(["bash", "-c", "python", "torchrun x.py", "-m", "env"]), max_size=4),
        "args": st.lists(TEXT, max_size=2),
        "env": ENV,
        "envFrom": st.just([{"secretRef": {"name": "s"}}]),
        "resources": RESOURCES,
        "volumeMounts": st.just([{"name": "data", "mountPath": "/data"}]),
        "workingDir": TEXT,
        "securityContext": st.sampled_from(
            [{"runAsUser": 0}, {"runAsNonRoot": True, "readOnlyRootFilesystem": True, "privileged": False}]
        ),
        "livenessProbe": PROBE,
        "readinessProbe": PROBE,
        "startupProbe": PROBE,
        "lifecycle": st.fixed_dictionaries({}, optional={"preStop": PROBE, "postStart": PROBE}),
        "terminationMessagePath": TEXT,
        "ports": st.just([{"containerPort": 23456}]),
        "tty": st.booleans(),
    },
)
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "restartPolicy": st.sampled_from(["Always", "OnFailure", "Never"]),
        "terminationGracePeriodSeconds": st.integers(0, 10_000),
        "securityContext": st.sampled_from(
            [{}, {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 2000, "seccompProfile": {"type": "Localhost"}}]
        ),
        "hostNetwork": st.booleans(),
        "dnsPolicy": st.sampled_from(["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
        "shareProcessNamespace": st.just(True),
        "serviceAccountName": st.just("trainer"),
        "automountServiceAccountToken": st.booleans(),
        "schedulerName": st.just("volcano"),
        "priorityClassName": st.just("low"),
        "activeDeadlineSeconds": st.integers(1, 9),
        "tolerations": st.just([{"operator": "Exists"}]),
        "volumes": st.just([{"name": "data", "emptyDir": {}}]),
        "resources": RESOURCES,
    },
)
LABELS = st.dictionaries(st.sampled_from(["app", "queue", "outrider.dev/inject"]), st.sampled_from(["true", "a"]))


@st.composite
def pods(draw: st.DrawFn) -> Document:
    containers = [{"name": f"c{n}", **each} for n, each in enumerate(draw(st.lists(CONTAINER, min_size=1, max_size=3)))]
    init = [{"name": f"i{n}", **each} for n, each in enumerate(draw(st.lists(CONTAINER, max_size=2)))]
    spec = {**draw(SPEC), "containers": containers, **({"initContainers": init} if init else {})}
    notes = draw(st.dictionaries(st.sampled_from(["sidecar.istio.io/inject", "outrider.dev/injected"]), TEXT))
    metadata = {"name": "p", **({"annotations": notes} if notes else {}), "labels": draw(LABELS)}
    return {"metadata": metadata, "spec": spec}


def without(document: Document, fields: set[str]) -> Document:
    return {name: value for name, value in document.items() if name not in fields}


@given(pods(), st.booleans(), st.sampled_from(["", "c0"]))
def test_what_is_the_users_stays_as_it_is(pod: Document, native: bool, container: str) -> None:
    before = json.dumps(pod)
    new = inject(pod, replace(PLACE, container=container, nproc=2), replace(POLICY, native_sidecar=native)).pod
    assert json.dumps(pod) == before
    users = pod["spec"]["containers"]
    assert trainer_name(new) == "c0"
    assert [each["name"] for each in new["spec"]["containers"][: len(users)]] == [each["name"] for each in users]
    assert new["spec"]["containers"][1 : len(users)] == users[1:]
    assert new["spec"]["initContainers"][1 + native :] == pod["spec"].get("initContainers", [])
    assert new["spec"]["volumes"][:-2] == pod["spec"].get("volumes", [])
    changed = ADDED_TO | ({"dnsPolicy"} if pod["spec"].get("hostNetwork") else set())
    assert without(new["spec"], changed) == without(pod["spec"], changed)
    assert quality_of(new["spec"]) == quality_of(pod["spec"])
    for kind in ("labels", "annotations"):
        kept = without(pod["metadata"].get(kind, {}), {"outrider.dev/injected"})
        assert kept.items() <= new["metadata"][kind].items()


@given(pods(), st.booleans())
def test_the_trainer_gets_a_launcher_or_a_path_variables_and_a_mount_and_nothing_else(
    pod: Document, native: bool
) -> None:
    found = inject(pod, PLACE, replace(POLICY, native_sidecar=native))
    old, new = pod["spec"]["containers"][0], found.pod["spec"]["containers"][0]
    assert without(new, CHANGED) == without(old, CHANGED)
    assert new["volumeMounts"][:-1] == old.get("volumeMounts", [])
    added = [entry["name"] for entry in new["env"] if entry not in old.get("env", [])]
    if old.get("command"):
        assert new["command"] == [LAUNCH, *old["command"]]
        assert new["env"][: len(old.get("env", []))] == old.get("env", [])
        assert all(name.startswith("OUTRIDER_") for name in added)
    else:
        assert new.get("command") == old.get("command")
        last = [entry for entry in new["env"] if entry["name"] == "PYTHONPATH"][-1]
        assert last["value"].startswith("/outrider/hooks")
        assert all(name.startswith("OUTRIDER_") or name == "PYTHONPATH" for name in added)


@given(pods(), st.booleans(), st.booleans())
def test_twice_is_once_whichever_version_comes_second(pod: Document, native: bool, other: bool) -> None:
    once = inject(pod, PLACE, replace(POLICY, native_sidecar=native))
    again = inject(once.pod, PLACE, replace(POLICY, native_sidecar=other, image="outrider/sidecar:2"))
    assert once.changed
    assert again.pod is once.pod
    assert (again.changed, again.refused) == (False, "")


@given(pods(), st.booleans())
def test_the_patch_of_a_webhook_makes_the_injected_pod(pod: Document, native: bool) -> None:
    new = inject(pod, PLACE, replace(POLICY, native_sidecar=native)).pod
    made = deepcopy(pod)
    patched(made, list(differences(pod, new)))
    assert made == new


# -- what is no pod -----------------------------------------------------------------------------------------------
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in inner for found in places(each, (*path, key)))]


@st.composite
def spoilt(draw: st.DrawFn) -> Document:
    """A pod with junk in one or two places."""
    pod = deepcopy(draw(pods()))
    pod["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "name": "p", "controller": True}]
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([path for path in places(pod) if path]))
        at: Any = pod
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = draw(JUNK)
    return pod


@given(spoilt())
def test_what_is_no_pod_is_injected_or_passed_through_with_a_sentence(pod: Document) -> None:
    before = json.dumps(pod)
    try:
        place = owners_owner.place_of(pod, "research", {"outrider.dev/inject": "enabled"}, [pod]) or PLACE
    except ValueError:
        place = PLACE
    found = inject(pod, place, POLICY)
    assert json.dumps(pod) == before
    assert found.changed is (not found.refused)
    assert found.changed or found.pod is pod
    assert all(found.explanation)
