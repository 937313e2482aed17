"""What becomes of a user's pod: supervised, and otherwise as it was; or untouched, with the reason."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli import pod_yaml
from master.core.cluster import owners
from master.core.cluster.containers import trainer_name
from master.core.cluster.injection import Injection, Place, Policy, inject
from master.core.cluster.injection_containers import quality_of
from master.core.cluster.injection_trainer import rung_of
from master.core.cluster.names import Document
from training_hooks.command import plan

PODS = Path(__file__).parent / "pods"
RECORDED = sorted(path.stem for path in PODS.glob("*.yaml") if ".injected" not in path.name)
POLICY = Policy("outrider/sidecar:1", "IfNotPresent", "tcp://outrider-master.outrider-system.svc:7070", "k" * 40)
NATIVE = replace(POLICY, native_sidecar=True)
PLACE = Place("gpt", "research", "worker")
LAUNCH = "/outrider/hooks/outrider-launch"
OURS = {"outrider-hooks", "outrider-sidecar"}


def recorded(name: str) -> Document:
    with (PODS / f"{name}.yaml").open() as file:
        pod: Document = pod_yaml.read(file)[0]
    return pod


def place_of(pod: Document) -> Place:
    place = owners.place_of(pod, "research", {})
    assert place is not None
    return place


def pod_of(*containers: Document, **spec: Any) -> Document:
    main = {"name": "main", "image": "train:1", "command": ["python", "train.py"]}
    return {"metadata": {"name": "gpt-0"}, "spec": {"containers": list(containers) or [main], **spec}}


def annotated(notes: Document) -> Document:
    return {**pod_of(), "metadata": {"name": "gpt-0", "annotations": notes}}


def main(**container: Any) -> Document:
    return {"name": "main", "image": "train:1", **container}


def injected(pod: Document, place: Place = PLACE, policy: Policy = POLICY) -> Document:
    found = inject(pod, place, policy)
    assert found.refused == ""
    assert found.changed
    return found.pod


def trainer(pod: Document) -> Document:
    found: Document = pod["spec"]["containers"][0]
    return found


def values(container: Document) -> dict[str, Any]:
    """A variable's value, or the path that it is read from."""
    return {
        entry["name"]: entry["value"] if "value" in entry else entry["valueFrom"]["fieldRef"]["fieldPath"]
        for entry in container["env"]
    }


def sidecar(pod: Document) -> Document:
    containers = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    return next(each for each in containers if each["name"] == "outrider-sidecar")


# -- whole pods ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["plain", "indexed_job", "stateful_set"])
def test_a_whole_pod(name: str, request: pytest.FixtureRequest) -> None:
    pod = recorded(name)
    new = injected(pod, place_of(pod), NATIVE if name == "indexed_job" else POLICY)
    path = PODS / f"{name}.injected.yaml"
    if request.config.getoption("--rewrite"):
        path.write_text(pod_yaml.written([new]))
    with path.open() as file:
        assert [new] == pod_yaml.read(file)


@pytest.mark.parametrize("policy", [POLICY, NATIVE], ids=["plain", "native"])
@pytest.mark.parametrize("name", RECORDED)
def test_what_is_the_users_stays(name: str, policy: Policy) -> None:
    pod = recorded(name)
    before = deepcopy(pod)
    new = injected(pod, place_of(pod), policy)
    assert pod == before
    assert quality_of(new["spec"]) == quality_of(pod["spec"])
    index = [each["name"] for each in pod["spec"]["containers"]].index(trainer_name(new))
    for number, (old, made) in enumerate(zip(pod["spec"]["containers"], new["spec"]["containers"], strict=False)):
        if number != index:
            assert made == old
        changed = {"command", "env", "volumeMounts"}
        assert {k: v for k, v in made.items() if k not in changed} == {k: v for k, v in old.items() if k not in changed}
        assert made.get("command", [])[-len(old.get("command", [])) :] == old.get("command", [])
        assert made.get("env", [])[: len(old.get("env", []))] == old.get("env", [])
        assert made.get("volumeMounts", [])[: len(old.get("volumeMounts", []))] == old.get("volumeMounts", [])
    users = {"initContainers", "containers", "volumes", "shareProcessNamespace"}
    rest = {k: v for k, v in new["spec"].items() if k not in users}
    assert rest == {k: v for k, v in pod["spec"].items() if k not in users}
    assert [each for each in new["spec"]["initContainers"] if each["name"] not in OURS] == pod["spec"].get(
        "initContainers", []
    )
    assert new["spec"]["volumes"][:-2] == pod["spec"].get("volumes", [])
    assert pod["metadata"].get("annotations", {}).items() <= new["metadata"]["annotations"].items()
    assert pod["metadata"]["labels"].items() <= new["metadata"]["labels"].items()


@pytest.mark.parametrize("name", RECORDED)
def test_twice_is_once(name: str) -> None:
    pod = recorded(name)
    new = injected(pod, place_of(pod))
    assert inject(new, place_of(new), POLICY) == Injection(
        new, False, "", ("annotation outrider.dev/injected is there: the pod is injected already",)
    )


def test_a_pod_that_another_version_has_injected_is_left_as_it_is() -> None:
    new = injected(recorded("plain"))
    new["metadata"]["annotations"]["outrider.dev/injected"] = "0.3"
    assert inject(new, PLACE, replace(NATIVE, image="outrider/sidecar:9")).pod is new


def test_an_annotation_that_was_copied_from_an_injected_pod_keeps_nobody_from_being_injected() -> None:
    assert sidecar(injected(annotated({"outrider.dev/injected": "1"})))


def test_the_launcher_is_put_before_the_users_command_as_it_stands() -> None:
    line = recorded("plain")["spec"]["containers"][0]["command"]
    assert line[:2] == ["bash", "-c"]
    new = injected(recorded("plain"))
    assert trainer(new)["command"] == [LAUNCH, *line]
    assert new["metadata"]["annotations"]["outrider.dev/rung"] == (
        "T0: torchrun inside bash -c is taken over, and its script becomes the template"
    )


def test_what_is_told_to_trainer_and_sidecar() -> None:
    place = Place("gpt", "research", "chief", "chief-3", 2, 8, "train.py", per_rank=True)
    new = injected(pod_of(terminationGracePeriodSeconds=0), place)
    assert values(trainer(new)) == {
        "OUTRIDER_DIR": "/outrider",
        "OUTRIDER_HOOKS": "/outrider/hooks",
        "OUTRIDER_POD_UID": "metadata.uid",
        "OUTRIDER_JOB": "research/gpt",
        "OUTRIDER_NPROC": "8",
        "OUTRIDER_SCRIPT": "train.py",
        "OUTRIDER_PER_RANK": "1",
        "OUTRIDER_PATIENCE": "86400",
    }
    assert "OUTRIDER_PATIENCE" not in values(trainer(injected(recorded("plain"))))
    assert values(sidecar(new)) == {
        "OUTRIDER_PLATFORM": "kubernetes",
        "OUTRIDER_LOG": "json",
        "OUTRIDER_JOB": "research/gpt",
        "OUTRIDER_MEMBER": "chief-3",
        "OUTRIDER_ROLE": "chief",
        "OUTRIDER_RANK_INDEX": "2",
        "OUTRIDER_POD_UID": "metadata.uid",
        "OUTRIDER_ADDRESS": "status.podIP",
        "OUTRIDER_DIR": "/outrider",
        "OUTRIDER_NPROC": "8",
        "OUTRIDER_GRACE": "0",
        "OUTRIDER_MASTER": POLICY.endpoint,
        "OUTRIDER_MASTER_KEY": POLICY.public_key,
        "OUTRIDER_TOKEN_FILE": "/var/run/secrets/outrider/token",
    }
    assert new["metadata"]["labels"] == {
        "outrider.dev/job": "gpt", "outrider.dev/role": "chief", "outrider.dev/rank-index": "2",
    }  # fmt: skip


def test_the_trainer_is_told_where_its_termination_message_goes() -> None:
    path = "/tmp/why"
    own = injected(pod_of(main(command=["python", "train.py"], terminationMessagePath=path)))
    assert values(trainer(own))["OUTRIDER_TERMINATION_LOG"] == path
    usual = injected(pod_of(main(command=["python", "train.py"], terminationMessagePath="/dev/termination-log")))
    assert "OUTRIDER_TERMINATION_LOG" not in values(trainer(usual))


def test_what_is_not_known_yet_is_read_from_the_pod() -> None:
    told = values(sidecar(injected(pod_of())))
    assert told["OUTRIDER_MEMBER"] == "metadata.name"
    assert told["OUTRIDER_RANK_INDEX"] == "metadata.labels['outrider.dev/rank-index']"
    assert told["OUTRIDER_GRACE"] == "30"
    assert "OUTRIDER_NPROC" not in told


def test_a_sidecar_that_nobody_starts_again_ends_with_the_trainers_code() -> None:
    never, always = pod_of(), pod_of()
    never["spec"]["restartPolicy"] = "Never"
    assert values(sidecar(injected(never)))["OUTRIDER_ENDS_AS"] == "trainer"
    assert "OUTRIDER_ENDS_AS" not in values(sidecar(injected(always)))


def test_a_native_sidecar_starts_before_all_but_the_hooks() -> None:
    pod = pod_of(initContainers=[{"name": "fetch", "image": "fetch:1"}])
    new = injected(pod, PLACE, NATIVE)
    assert [each["name"] for each in new["spec"]["initContainers"]] == ["outrider-hooks", "outrider-sidecar", "fetch"]
    assert [each.get("restartPolicy") for each in new["spec"]["initContainers"]] == [None, "Always", None]
    assert [each["name"] for each in new["spec"]["containers"]] == ["main"]


# -- the trainer --------------------------------------------------------------------------------------------------
def two(**annotations: str) -> Document:
    names = {f"outrider.dev/{word}" if word == "container" else f"kubectl.kubernetes.io/{word.replace('_', '-')}": value
             for word, value in annotations.items()}  # fmt: skip
    pod = pod_of({"name": "logs", "image": "logs:1"}, main(command=["python", "train.py"]))
    return {**pod, "metadata": {"annotations": names}}


@pytest.mark.parametrize(
    ("pod", "container", "chosen", "why"),
    [
        (two(), "", "logs", "the trainer is the container logs: it is the first container"),
        (two(default_container="main"), "", "main",
         "the trainer is the container main: annotation kubectl.kubernetes.io/default-container names it"),
        (two(default_container="nobody"), "", "logs", "the trainer is the container logs: it is the first container"),
        (two(default_container="logs", container="main"), "main", "main",
         "the trainer is the container main: annotation outrider.dev/container names it"),
    ],
)  # fmt: skip
def test_which_container_is_the_trainer(pod: Document, container: str, chosen: str, why: str) -> None:
    found = inject(pod, replace(PLACE, container=container), POLICY)
    by_name = {each["name"]: each for each in found.pod["spec"]["containers"]}
    assert [name for name, each in by_name.items() if "OUTRIDER_HOOKS" in str(each.get("env"))] == [chosen]
    assert why in found.explanation
    assert trainer_name(found.pod) == chosen  # as its status will be read


def test_the_training_operators_trainer_has_the_name_that_it_gives_it() -> None:
    pod = pod_of({"name": "metrics", "image": "m:1"}, {"name": "pytorch", "image": "train:1"})
    found = inject(pod, replace(PLACE, of_operator=True), POLICY)
    assert trainer_name(found.pod) == "pytorch"
    assert (
        "the trainer is the container pytorch: the training operator runs a job in the container of this name"
    ) in found.explanation
    assert trainer_name(injected(pod)) == "metrics"
    assert trainer_name(injected(two(default_container="main"), replace(PLACE, of_operator=True))) == "main"


def test_kubectl_looks_into_the_trainer_unless_the_user_wants_another() -> None:
    notes = injected(two(default_container="main"))["metadata"]["annotations"]
    assert notes["kubectl.kubernetes.io/default-logs-container"] == "main"
    notes = injected(two(default_logs_container="logs"), replace(PLACE, container="main"))["metadata"]["annotations"]
    assert notes["kubectl.kubernetes.io/default-logs-container"] == "logs"
    assert notes["kubectl.kubernetes.io/default-container"] == "main"


# -- PYTHONPATH ---------------------------------------------------------------------------------------------------
SECRET = {"secretKeyRef": {"name": "paths", "key": "python"}}


@pytest.mark.parametrize(
    ("env", "sources", "annotation", "made"),
    [
        ([], [], "", [{"name": "PYTHONPATH", "value": "/outrider/hooks"}]),
        ([], [], "/image", [{"name": "PYTHONPATH", "value": "/outrider/hooks:/image"}]),
        ([], [{"configMapRef": {"name": "c"}}], "",
         [{"name": "PYTHONPATH", "value": "/outrider/hooks:$(PYTHONPATH)"}]),
        ([], [{"configMapRef": {"name": "c"}}], "/image", [{"name": "PYTHONPATH", "value": "/outrider/hooks:/image"}]),
        ([{"name": "A", "value": "1"}, {"name": "PYTHONPATH", "value": "/a:$(A)"}, {"name": "B", "value": "2"}], [],
         "/image",
         [{"name": "A", "value": "1"}, {"name": "PYTHONPATH", "value": "/outrider/hooks:/a:$(A)"},
          {"name": "B", "value": "2"}]),
        ([{"name": "PYTHONPATH"}], [], "", [{"name": "PYTHONPATH", "value": "/outrider/hooks"}]),
        ([{"name": "PYTHONPATH", "value": "/a"}, {"name": "PYTHONPATH", "value": "/b"}], [], "",
         [{"name": "PYTHONPATH", "value": "/a"}, {"name": "PYTHONPATH", "value": "/outrider/hooks:/b"}]),
        ([{"name": "PYTHONPATH", "valueFrom": SECRET}, {"name": "B", "value": "2"}], [], "",
         [{"name": "OUTRIDER_USERS_PYTHONPATH", "valueFrom": SECRET},
          {"name": "PYTHONPATH", "value": "/outrider/hooks:$(OUTRIDER_USERS_PYTHONPATH)"},
          {"name": "B", "value": "2"}]),
    ],
    ids=["none", "of the image", "envFrom", "envFrom and image", "its own", "empty", "twice", "valueFrom"],
)  # fmt: skip
def test_without_a_command_the_hooks_come_before_what_the_trainer_would_have_had(
    env: list[Document], sources: list[Document], annotation: str, made: list[Document]
) -> None:
    container = main(args=["train.py"], env=env, **({"envFrom": sources} if sources else {}))
    new = trainer(injected(pod_of(container), replace(PLACE, pythonpath=annotation)))
    assert new["env"][: len(made)] == made
    assert "command" not in new


def test_with_a_command_the_launcher_sees_to_it() -> None:
    env = [{"name": "PYTHONPATH", "valueFrom": SECRET}]
    new = trainer(injected(pod_of(main(command=["python", "t.py"], env=env)), replace(PLACE, pythonpath="/image")))
    assert new["env"][0] == env[0]
    assert [entry["name"] for entry in new["env"]].count("PYTHONPATH") == 1


# -- QoS ----------------------------------------------------------------------------------------------------------
def amounts(limits: Document | None = None, requests: Document | None = None) -> Document:
    return {"limits": limits or {}, "requests": requests or {}}


FULL = amounts({"cpu": "1", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("containers", "quality"),
    [
        ([{}], "BestEffort"),
        ([amounts({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "8"})], "BestEffort"),
        ([amounts({"cpu": "0", "memory": 0})], "BestEffort"),
        ([FULL], "Guaranteed"),
        ([amounts({"cpu": 2, "memory": "1Gi"}, {"cpu": "2000m", "memory": "1024Mi"})], "Guaranteed"),
        ([amounts({"cpu": "500m", "memory": "1Gi"}, {"cpu": 0.5, "memory": 1 << 30})], "Guaranteed"),
        ([amounts({"cpu": "500m", "memory": "1Gi"}, {"cpu": "400m", "memory": "1Gi"})], "Burstable"),
        ([amounts({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1G"})], "Burstable"),
        ([amounts({"cpu": "1"}, {"cpu": "1"})], "Burstable"),
        ([amounts(None, {"memory": "1Gi"})], "Burstable"),
        ([FULL, {}], "Burstable"),
        ([FULL, FULL], "Guaranteed"),
    ],
)
def test_the_quality_of_a_pod_is_kept(containers: list[Document], quality: str) -> None:
    pod = pod_of(*({"name": f"c{n}", "image": "i", "resources": each} for n, each in enumerate(containers)))
    assert quality_of(pod["spec"]) == quality
    for policy in (POLICY, NATIVE):
        new = injected(pod, PLACE, policy)
        assert quality_of(new["spec"]) == quality
        ours = [each.get("resources", {}) for each in (new["spec"]["initContainers"][0], sidecar(new))]
        all_limited = all("cpu" in each.get("limits", {}) for each in containers) and quality != "BestEffort"
        assert all(("cpu" in mine.get("limits", {})) is all_limited for mine in ours)
        assert all(("memory" in mine.get("limits", {})) is (quality != "BestEffort") for mine in ours)


def test_what_a_quota_asks_of_every_container_ours_have_too() -> None:
    asked = {"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
             "limits": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"}}  # fmt: skip
    new = injected(pod_of(main(command=["a"], resources=asked), initContainers=[main(resources=asked)]))
    for mine in (new["spec"]["initContainers"][0], sidecar(new)):
        assert {kind: set(amounts) for kind, amounts in mine["resources"].items()} == {
            kind: set(amounts) for kind, amounts in asked.items()
        }
    assert quality_of(new["spec"]) == "Burstable"
    new = injected(pod_of(main(command=["a"], resources=asked), initContainers=[main()]))
    assert "cpu" not in sidecar(new)["resources"]["limits"]


def test_what_is_asked_for_the_whole_pod_is_not_exceeded_by_our_containers() -> None:
    new = injected(pod_of(resources=amounts({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})))
    assert "resources" not in sidecar(new)
    assert quality_of(new["spec"]) == "Guaranteed"


# -- which container is the trainer -------------------------------------------------------------------------------
@pytest.mark.parametrize("proxy", ["istio-proxy", "linkerd-proxy"])
def test_the_proxy_of_a_service_mesh_is_never_taken_for_the_trainer(proxy: str) -> None:
    pod = pod_of({"name": proxy, "command": ["/proxy"]}, {"name": "main", "command": ["python", "train.py"]})
    found = inject(pod, PLACE, POLICY)
    assert found.pod["metadata"]["annotations"]["outrider.dev/container"] == "main"
    assert found.pod["spec"]["containers"][0]["command"] == ["/proxy"]
    assert f"the trainer is the container main: it is the first container that is no service mesh's, as {proxy} is" in (
        found.explanation
    )
    assert not found.warnings


def test_a_first_container_that_runs_no_python_beside_one_that_does_is_warned_of() -> None:
    pod = pod_of({"name": "log", "command": ["/bin/fluent-bit"]}, {"name": "main", "command": ["python", "train.py"]})
    found = inject(pod, PLACE, POLICY)
    assert found.pod["metadata"]["annotations"]["outrider.dev/container"] == "log", "the first one, as it is documented"
    (warning,) = found.warnings
    assert warning == (
        "the container log is taken for the trainer, because it is the first, and its command runs no Python; if main "
        "is the trainer, put it first or set the annotation outrider.dev/container: main"
    )
    assert warning in found.explanation


@pytest.mark.parametrize(
    "first",
    [
        {"name": "a"},
        {"name": "a", "command": ["bash", "train.sh"]},
        {"name": "a", "command": ["sh", "-c", "exec torchrun train.py"]},
        {"name": "a", "command": ["deepspeed", "train.py"]},
    ],
)
def test_a_first_container_that_may_train_is_not_doubted(first: Document) -> None:
    pod = pod_of(first, {"name": "main", "command": ["python", "train.py"]})
    assert not inject(pod, PLACE, POLICY).warnings


def test_who_has_said_which_container_it_is_is_not_warned() -> None:
    pod = pod_of({"name": "log", "command": ["/bin/log"]}, {"name": "main", "command": ["python", "train.py"]})
    assert not inject(pod, replace(PLACE, container="log"), POLICY).warnings


# -- refused ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"metadata": {}, "spec": {"containers": []}}, "spec.containers: there is none"),
        ({"metadata": {}}, "spec.containers: there is none"),
        (pod_of(hostPID=True), "spec.hostPID: it is true"),
        (pod_of(shareProcessNamespace=False), "spec.shareProcessNamespace: it is false"),
        (pod_of(os={"name": "windows"}), "it is a Windows pod"),
        (pod_of(nodeSelector={"kubernetes.io/os": "windows"}), "it is a Windows pod"),
        (pod_of(securityContext={"windowsOptions": {"hostProcess": True}}), "it is a Windows pod"),
        (annotated({"kubernetes.io/config.mirror": "x"}), "it is a static pod"),
        (annotated({"notes": "x" * (256 * 1024 - 100)}), "bytes, and 262144 are allowed"),
        (annotated({"notes": "é" * (128 * 1024 - 100)}), "bytes, and 262144 are allowed"),
        (pod_of(main(), {"name": "outrider-sidecar"}), "it has a container outrider-sidecar of its own"),
        (pod_of(initContainers=[{"name": "outrider-hooks"}]), "it has a container outrider-hooks of its own"),
        (pod_of(volumes=[{"name": "outrider"}]), "it has a volume outrider of its own"),
        (pod_of(volumes=[{"name": "outrider-token"}]), "it has a volume outrider-token of its own"),
        (pod_of(main(env=[{"name": "OUTRIDER_DIR", "value": "/x"}])), "its container main sets OUTRIDER_DIR itself"),
        (pod_of(main(volumeMounts=[{"name": "d", "mountPath": "/outrider/"}])), "has a mount at /outrider, where"),
        (pod_of(main(volumeMounts=[{"name": "d", "mountPath": "/outrider/hooks"}])), "has a mount at /outrider/hooks"),
        (pod_of("main"), "spec.containers[0]: it must be an object"),  # type: ignore[arg-type]
        (pod_of(main(command="python train.py")), "spec.containers[0].command: it must be a list"),
        (pod_of(main(env=["A=1"])), "spec.containers[0].env: each entry must be an object"),
        (pod_of(initContainers=[main(env={"A": "1"})]), "spec.initContainers[0].env: it must be a list"),
    ],
)  # fmt: skip
def test_a_pod_is_passed_through_with_the_reason(pod: Document, said: str) -> None:
    found = inject(pod, PLACE, POLICY)
    assert said in found.refused
    assert found.pod is pod
    assert not found.changed
    assert found.explanation == (f"the pod is passed through untouched: {found.refused}",)


def test_a_container_that_is_not_there_cannot_be_the_trainer() -> None:
    found = inject(pod_of(), replace(PLACE, container="trainer"), POLICY)
    assert found.refused == (
        "spec.containers: annotation outrider.dev/container names trainer, and the pod's containers are main"
    )


def test_the_pod_written_by_hand_is_left_alone() -> None:
    with (Path(__file__).parents[3] / "examples/pod/pod.yaml").open() as file:
        pod = pod_yaml.read(file)[0]
    assert inject(pod, PLACE, POLICY).refused != ""


# -- rungs --------------------------------------------------------------------------------------------------------
COMMANDS: list[tuple[str | list[str], str]] = [
    ("python train.py", "T0: the container's command is the script train.py"),
    ("/usr/bin/python3.11 -u -W ignore -X dev train.py -c", "T0: the container's command is the script train.py"),
    ("python -Wignore -m my.trainer", "T0: the container's command is the module my.trainer"),
    ("python -um my.trainer", "T0: the container's command is the module my.trainer"),
    ("python -c pass", "T1: Python is given its program as text"),
    ("python -", "T1: Python is given its program as text"),
    ("python", "T1: Python is given its program as text"),
    ("python -I train.py", "T1: Python is called with -I"),
    ("python -sS train.py", "T1: Python is called with -S"),
    ("torchrun --nproc-per-node 2 train.py", "T0: torchrun is taken over"),
    ("python /usr/bin/torchrun train.py", "T0: torchrun is taken over"),
    ("python -m torch.distributed.launch train.py", "T0: torchrun is taken over"),
    ("accelerate launch train.py", "T0: accelerate launch"),
    ("python -m accelerate.commands.launch train.py", "T0: accelerate launch"),
    ("accelerate test", "T1: accelerate test is no training"),
    ("deepspeed train.py", "T1: deepspeed starts its ranks itself"),
    ("mpirun -np 2 python train.py", "T1: mpirun starts its ranks itself"),
    ("numactl -N 0 python a.py", "T0: the container's command is the script a.py, which becomes the template ("),
    ("tini -- ./train", "T1: tini runs no Python"),
    ("./train", "T0 if ./train proves to be a Python script"),
    ("bash run.sh", "T0 if the script that bash runs starts a Python trainer"),
    (["sh", "-c", "cd /work && python train.py"], "T0 if a Python script inside sh -c uses a library"),
    (["bash", "-lc", "# torchrun\nsleep 1"], "T1: bash -c names no Python trainer"),
    (["bash", "-ec", "deepspeed train.py"], "T1: bash -c uses deepspeed"),
    (["bash", "-c", "exec python -m torch.distributed.run t.py"], "T0: torchrun inside bash -c"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "rung"), COMMANDS)
def test_which_rung_a_command_aims_at(command: str | list[str], rung: str) -> None:
    words = command.split() if isinstance(command, str) else command
    assert rung_of(main(command=words[:1], args=words[1:]), PLACE).startswith(rung)
    assert rung_of(main(command=words), PLACE) == rung_of(main(command=words[:1], args=words[1:]), PLACE)


@pytest.mark.parametrize(("command", "rung"), COMMANDS)
def test_the_hooks_decide_the_same_where_no_file_decides(command: str | list[str], rung: str) -> None:
    if rung[2] == ":":
        assert plan(command.split() if isinstance(command, str) else command, {"PATH": ""}).rung == rung[:2]


def test_a_named_script_is_the_one_inside_a_shell() -> None:
    place, words = replace(PLACE, script="train.py"), ["sh", "-c", "python prepare.py && python train.py"]
    assert rung_of(main(command=words), place) == (
        "T0: inside sh -c, the script that matches train.py becomes the template"
    )
    assert plan(words, {"OUTRIDER_SCRIPT": "train.py"}).rung == "T0"
    assert rung_of(main(command=["sh", "-c", "./train"]), place).startswith("T1: sh -c names no Python trainer")


def test_of_an_image_only_the_image_knows() -> None:
    assert rung_of(main(args=["train.py"]), PLACE).startswith("T0 where the image's entrypoint is a Python trainer")


# -- why ----------------------------------------------------------------------------------------------------------
def test_the_explanation_of_an_indexed_job() -> None:
    pod = recorded("indexed_job")
    assert inject(pod, place_of(pod), POLICY).explanation == (
        "the pod is a worker of the job research/gpt, with rank index 2",
        "its annotations ask for at most 0 restarts in place, train.py as the script",
        "the trainer is the container main: it is the only container",
        "the rung aimed at is T0 where the image's entrypoint is a Python trainer, which cannot be seen from here; "
        "else none: it runs as without us, as no launcher can be put in front of it",
        "added to the trainer: variables OUTRIDER_*, PYTHONPATH, a mount at /outrider",
        "PYTHONPATH is the hooks and then what annotation outrider.dev/pythonpath says",
        "added to the pod: init container outrider-hooks, container outrider-sidecar, volumes outrider and "
        "outrider-token, shareProcessNamespace",
        "the pod stays Guaranteed: our containers have requests 100m of cpu, 96Mi of memory and limits 100m of cpu, "
        "96Mi of memory",
        "what would stop it: an entrypoint of the image train:1 that is no Python, or one with -I, -E, -S",
        "restartPolicy is Never: where the template or launcher dies, the whole pod has failed and is replaced",
    )


@pytest.mark.parametrize(
    ("words", "says"), [("kill -TERM 1", True), ("kill -9 12", False), ("cat /proc/1/status", True), ("sleep 1", False)]
)
def test_who_names_pid_1_is_told_whose_it_is(words: str, says: bool) -> None:
    for exec_words in (words.split(), ["sh", "-c", words]):
        hook = {"preStop": {"exec": {"command": exec_words}}}
        found = inject(pod_of(main(command=["python", "t.py"], lifecycle=hook)), PLACE, POLICY)
        assert any("pid 1" in sentence for sentence in found.explanation) is says
