"""What becomes of a user's pod: supervised, and otherwise as it was; or untouched, with the reason."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.cli.kube import yaml as kube_yaml
from outrider.master.core.k8s.injection.sidecar import Policy, quality_of
from outrider.master.core.k8s.injection.webhook import Injection, inject
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.injection.injecting import (
    LAUNCH,
    NATIVE,
    OURS,
    PLACE,
    POLICY,
    annotated,
    injected,
    main,
    place_of,
    pod_of,
    sidecar,
    trainer,
    values,
)

PODS = Path(__file__).parents[1] / "data/pods"
RECORDED = sorted(path.stem for path in PODS.glob("*.yaml") if ".injected" not in path.name)


def recorded(name: str) -> Document:
    with (PODS / f"{name}.yaml").open() as file:
        pod: Document = kube_yaml.read(file)[0]
    return pod


# -- whole pods ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["plain", "indexed_job", "stateful_set"])
def test_a_whole_pod(name: str, request: pytest.FixtureRequest) -> None:
    pod = recorded(name)
    new = injected(pod, place_of(pod), NATIVE if name == "indexed_job" else POLICY)
    path = PODS / f"{name}.injected.yaml"
    if request.config.getoption("--rewrite"):
        path.write_text(kube_yaml.written([new]))
    with path.open() as file:
        assert [new] == kube_yaml.read(file)


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
        new, False, "", ("the pod is already injected: it has the annotation outrider.dev/injected",)
    )


def test_a_pod_that_another_version_has_injected_is_left_as_it_is() -> None:
    new = injected(recorded("plain"))
    new["metadata"]["annotations"]["outrider.dev/injected"] = "0.3"
    assert inject(new, PLACE, replace(NATIVE, image="outrider/sidecar:9")).pod is new


def test_a_copied_annotation_does_not_prevent_the_injection() -> None:
    assert sidecar(injected(annotated({"outrider.dev/injected": "1"})))


def test_the_launcher_is_put_before_the_users_command_as_it_stands() -> None:
    line = recorded("plain")["spec"]["containers"][0]["command"]
    assert line[:2] == ["bash", "-c"]
    new = injected(recorded("plain"))
    assert trainer(new)["command"] == [LAUNCH, *line]
    assert new["metadata"]["annotations"]["outrider.dev/supervision-mode"] == (
        "fork: Outrider replaces torchrun inside bash -c, and its script becomes the template"
    )


def test_the_variables_of_trainer_and_sidecar() -> None:
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
        "OUTRIDER_PATIENCE": "inf",
    }
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


def test_a_trainer_has_the_variables_for_its_checkpoints() -> None:
    data = main(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    place = replace(PLACE, migration_dir="/data/moves", atomic_save="required")
    found = values(trainer(injected(pod_of(data, volumes=[{"name": "data", "hostPath": {}}]), place)))
    assert (found["OUTRIDER_MIGRATION_DIR"], found["OUTRIDER_ATOMIC_SAVE"]) == ("/data/moves/gpt", "required")
    assert not {"OUTRIDER_MIGRATION_DIR", "OUTRIDER_ATOMIC_SAVE"} & values(trainer(injected(pod_of()))).keys()
    assert inject(pod_of(), place, POLICY).refused.startswith(
        'metadata.annotations[outrider.dev/migration-dir]: Invalid value: "/data/moves": must be on a persistent volume'
    )


def test_the_trainer_has_the_path_of_its_termination_message() -> None:
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


def test_a_sidecar_that_is_not_restarted_ends_with_the_trainers_code() -> None:
    never, always = pod_of(), pod_of()
    never["spec"]["restartPolicy"] = "Never"
    assert values(sidecar(injected(never)))["OUTRIDER_ENDS_AS"] == "trainer"
    assert "OUTRIDER_ENDS_AS" not in values(sidecar(injected(always)))


def test_a_native_sidecar_knows_that_it_is_one() -> None:
    """By that it knows what SIGTERM means (docs/adr/0026)."""
    assert values(sidecar(injected(pod_of(), policy=NATIVE)))["OUTRIDER_SIDECAR"] == "native"
    assert "OUTRIDER_SIDECAR" not in values(sidecar(injected(pod_of())))


def test_a_native_sidecar_starts_before_all_but_the_hooks() -> None:
    pod = pod_of(initContainers=[{"name": "fetch", "image": "fetch:1"}])
    new = injected(pod, PLACE, NATIVE)
    assert [each["name"] for each in new["spec"]["initContainers"]] == ["outrider-hooks", "outrider-sidecar", "fetch"]
    assert [each.get("restartPolicy") for each in new["spec"]["initContainers"]] == [None, "Always", None]
    assert [each["name"] for each in new["spec"]["containers"]] == ["main"]


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


# -- refused ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"metadata": {}, "spec": {"containers": []}}, "spec.containers: Required value"),
        ({"metadata": {}}, "spec.containers: Required value"),
        (pod_of(hostPID=True), "spec.hostPID: Invalid value: true: must be false, because the sidecar needs"),
        (pod_of(shareProcessNamespace=False), "spec.shareProcessNamespace: Invalid value: false: must be true or"),
        (pod_of(os={"name": "windows"}), "it makes this a Windows pod; the hooks and the sidecar need Linux"),
        (pod_of(nodeSelector={"kubernetes.io/os": "windows"}), "it makes this a Windows pod; the hooks and the"),
        (pod_of(securityContext={"windowsOptions": {"hostProcess": True}}), "it makes this a Windows pod; the hooks"),
        (annotated({"kubernetes.io/config.mirror": "x"}), "the kubelet runs a static pod from a file, so it cannot"),
        (annotated({"notes": "x" * (256 * 1024 - 100)}), "metadata.annotations: Too long: may not be more than"),
        (annotated({"notes": "é" * (128 * 1024 - 100)}), "metadata.annotations: Too long: may not be more than"),
        (pod_of(main(), {"name": "outrider-sidecar"}), "outrider-sidecar is the name of an injected container"),
        (pod_of(initContainers=[{"name": "outrider-hooks"}]), "outrider-hooks is the name of an injected container"),
        (pod_of(volumes=["data"]), 'spec.volumes: Invalid value: ["data"]: each entry must be an object'),
        (pod_of(volumes=[{"name": "outrider"}]), "outrider is the name of an injected volume"),
        (pod_of(volumes=[{"name": "outrider-token"}]), "outrider-token is the name of an injected volume"),
        (pod_of(main(env=[{"name": "OUTRIDER_DIR", "value": "/x"}])), "the injection sets OUTRIDER_DIR; is"),
        (pod_of(main(volumeMounts=[{"name": "d", "mountPath": "/outrider/"}])), "must not be in /outrider, the"),
        (pod_of(main(volumeMounts=[{"name": "d", "mountPath": "/outrider/hooks"}])), "must not be in /outrider, the"),
        (pod_of("main"), 'spec.containers[0]: Invalid value: "main": must be an object'),  # type: ignore[arg-type]
        (pod_of(main(command="python train.py")), 'spec.containers[0].command: Invalid value: "python train.py":'),
        (pod_of(main(env=["A=1"])), 'spec.containers[0].env[0]: Invalid value: "A=1": must be an object whose name'),
        (pod_of(initContainers=[main(env={"A": "1"})]), 'spec.initContainers[0].env: Invalid value: {"A": "1"}:'),
    ],
)  # fmt: skip
def test_a_pod_is_passed_through_with_the_reason(pod: Document, said: str) -> None:
    found = inject(pod, PLACE, POLICY)
    assert said in found.refused
    assert found.pod is pod
    assert not found.changed
    assert found.explanation == (f"the pod is not injected: {found.refused}",)


def test_a_container_that_is_not_there_cannot_be_the_trainer() -> None:
    found = inject(pod_of(), replace(PLACE, container="trainer"), POLICY)
    assert found.refused == (
        'metadata.annotations[outrider.dev/container]: Unsupported value: "trainer": supported values: "main"'
    )


def test_the_pod_written_by_hand_is_left_alone() -> None:
    with (Path(__file__).parents[6] / "examples/pod/pod.yaml").open() as file:
        pod = kube_yaml.read(file)[0]
    assert inject(pod, PLACE, POLICY).refused != ""


# -- why ----------------------------------------------------------------------------------------------------------
def test_the_explanation_of_an_indexed_job() -> None:
    pod = recorded("indexed_job")
    assert inject(pod, place_of(pod), POLICY).explanation == (
        "the pod has the role worker in job research/gpt, with rank index 2",
        "its annotations request at most 0 restarts in place, train.py as the script",
        "the trainer is the container main: it is the only container",
        "the expected mode is fork if the image's entrypoint is a Python trainer, which cannot be seen here; else "
        "none: it runs unsupervised, because no launcher can be put before it",
        "added to the trainer: variables OUTRIDER_*, PYTHONPATH, a mount at /outrider",
        "PYTHONPATH is the hooks and then the annotation outrider.dev/pythonpath",
        "added to the pod: init container outrider-hooks, container outrider-sidecar, volumes outrider and "
        "outrider-token, shareProcessNamespace",
        "the pod stays Guaranteed: our containers have requests 100m of cpu, 96Mi of memory and limits 100m of cpu, "
        "96Mi of memory",
        "if the entrypoint of the image train:1 is not Python, or is Python with -I, -E or -S, it runs unsupervised",
        "restartPolicy is Never: if the template or launcher dies, the whole pod fails and is replaced",
        "if its sidecar cannot reach a master, the pod waits and logs the reason every minute",
    )


@pytest.mark.parametrize(
    ("words", "says"), [("kill -TERM 1", True), ("kill -9 12", False), ("cat /proc/1/status", True), ("sleep 1", False)]
)
def test_a_command_that_names_pid_1_is_explained(words: str, says: bool) -> None:
    for exec_words in (words.split(), ["sh", "-c", words]):
        hook = {"preStop": {"exec": {"command": exec_words}}}
        found = inject(pod_of(main(command=["python", "t.py"], lifecycle=hook)), PLACE, POLICY)
        assert any("pid 1" in sentence for sentence in found.explanation) is says


def test_the_secret_that_pulls_our_image_comes_behind_the_users() -> None:
    policy = replace(POLICY, pull_secret="ours")
    assert "imagePullSecrets" not in injected(pod_of(main()))["spec"]
    assert injected(pod_of(main()), policy=policy)["spec"]["imagePullSecrets"] == [{"name": "ours"}]
    pod = pod_of(main())
    pod["spec"]["imagePullSecrets"] = [{"name": "theirs"}]
    assert injected(pod, policy=policy)["spec"]["imagePullSecrets"] == [{"name": "theirs"}, {"name": "ours"}]
    pod["spec"]["imagePullSecrets"] = [{"name": "ours"}]
    assert injected(pod, policy=policy)["spec"]["imagePullSecrets"] == [{"name": "ours"}]


@pytest.mark.parametrize(
    ("spec", "becomes"),
    [
        ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
        ({"hostNetwork": True, "dnsPolicy": "ClusterFirst"}, "ClusterFirstWithHostNet"),
        ({"hostNetwork": True, "dnsPolicy": "Default"}, "Default"),
        ({"hostNetwork": True, "dnsPolicy": "None"}, "None"),
        ({"hostNetwork": False, "dnsPolicy": "ClusterFirst"}, "ClusterFirst"),
        ({}, None),
    ],
)
def test_a_pod_on_its_nodes_network_finds_the_masters_service(spec: Document, becomes: str | None) -> None:
    found = inject(pod_of(main(), **spec), PLACE, POLICY)
    assert found.pod["spec"].get("dnsPolicy") == becomes
    assert any("dnsPolicy becomes" in sentence for sentence in found.explanation) is (becomes != spec.get("dnsPolicy"))
