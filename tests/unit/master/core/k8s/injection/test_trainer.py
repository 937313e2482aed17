"""Which container is the trainer, and how its command is run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.k8s.injection.trainer import mode_of
from outrider.master.core.k8s.injection.webhook import Injection, inject
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values.names import SHARES, Document
from tests.unit.master.core.k8s.injection.injecting import PLACE, POLICY, injected, main, pod_of, trainer
from training_hooks.command.plan import plan


def doubts(found: Injection) -> list[str]:
    """Without what is said of the others' processes (test_neighbours.py)."""
    return [warning for warning in found.warnings if SHARES not in warning]


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
         "the trainer is the container main: the annotation kubectl.kubernetes.io/default-container names it"),
        (two(default_container="nobody"), "", "logs", "the trainer is the container logs: it is the first container"),
        (two(default_container="logs", container="main"), "main", "main",
         "the trainer is the container main: the annotation outrider.dev/container names it"),
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
        "the trainer is the container pytorch: the training operator runs the job in the container with this name"
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


@pytest.mark.parametrize("proxy", ["istio-proxy", "linkerd-proxy"])
def test_the_proxy_of_a_service_mesh_is_never_taken_for_the_trainer(proxy: str) -> None:
    pod = pod_of({"name": proxy, "command": ["/proxy"]}, {"name": "main", "command": ["python", "train.py"]})
    found = inject(pod, PLACE, POLICY)
    assert found.pod["metadata"]["annotations"]["outrider.dev/container"] == "main"
    assert found.pod["spec"]["containers"][0]["command"] == ["/proxy"]
    why = f"it is the first container after the service mesh's {proxy}"
    assert f"the trainer is the container main: {why}" in found.explanation
    assert not doubts(found)


def test_a_first_container_that_runs_no_python_beside_one_that_does_is_warned_of() -> None:
    pod = pod_of({"name": "log", "command": ["/bin/fluent-bit"]}, {"name": "main", "command": ["python", "train.py"]})
    found = inject(pod, PLACE, POLICY)
    assert found.pod["metadata"]["annotations"]["outrider.dev/container"] == "log", "the first one, as it is documented"
    (warning,) = doubts(found)
    assert warning == (
        "the container log counts as the trainer because it is the first, but its command does not run Python; if "
        "main is the trainer, put it first or set the annotation outrider.dev/container: main"
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
    assert not doubts(inject(pod, PLACE, POLICY))


def test_who_has_said_which_container_it_is_is_not_warned() -> None:
    pod = pod_of({"name": "log", "command": ["/bin/log"]}, {"name": "main", "command": ["python", "train.py"]})
    assert not doubts(inject(pod, replace(PLACE, container="log"), POLICY))


COMMANDS: list[tuple[str | list[str], str]] = [
    ("python train.py", "fork: the container's command is the script train.py"),
    ("/usr/bin/python3.11 -u -W ignore -X dev train.py -c", "fork: the container's command is the script train.py"),
    ("python -Wignore -m my.trainer", "fork: the container's command is the module my.trainer"),
    ("python -um my.trainer", "fork: the container's command is the module my.trainer"),
    ("python -c pass", "relaunch: Python gets its program as text, not as a script"),
    ("python -", "relaunch: Python gets its program as text, not as a script"),
    ("python", "relaunch: Python gets its program as text, not as a script"),
    ("python -I train.py", "relaunch: Python runs with -I, so the hooks cannot be loaded"),
    ("python -sS train.py", "relaunch: Python runs with -S, so the hooks cannot be loaded"),
    ("torchrun --nproc-per-node 2 train.py", "fork: Outrider replaces torchrun, and its script becomes the template"),
    ("python /usr/bin/torchrun train.py", "fork: Outrider replaces torchrun, and its script becomes the template"),
    ("python -m torch.distributed.launch train.py", "fork: Outrider replaces torchrun, and its script becomes the"),
    ("accelerate launch train.py", "fork: accelerate launch"),
    ("python -m accelerate.commands.launch train.py", "fork: accelerate launch"),
    ("python /usr/bin/accelerate launch train.py", "fork: accelerate launch"),
    ("python /usr/bin/deepspeed train.py", "relaunch: deepspeed starts its ranks"),
    ("python -m deepspeed.launcher.runner train.py", "relaunch: deepspeed starts its ranks"),
    ("accelerate test", "relaunch: accelerate test does not train, so it is restarted for each generation"),
    ("deepspeed train.py", "relaunch: deepspeed starts its ranks"),
    ("mpirun -np 2 python train.py", "relaunch: mpirun starts its ranks"),
    ("numactl -N 0 python a.py", "fork: the container's command is the script a.py, which becomes the template ("),
    ("tini -- ./train", "relaunch: tini shows no Python command, so it is restarted for each generation"),
    ("./train", "fork if the first line of ./train shows a Python script; else relaunch, restarted for"),
    ("bash run.sh", "fork if the script of bash starts a Python trainer; else relaunch, restarted for each"),
    (["sh", "-c", "cd /work && python train.py"], "fork if a Python script inside sh -c uses a library"),
    (["bash", "-lc", "# torchrun\nsleep 1"], "relaunch: bash -c names no Python trainer"),
    (["bash", "-ec", "deepspeed train.py"], "relaunch: deepspeed inside bash -c starts its ranks itself, so it is"),
    (["bash", "-c", "exec python -m torch.distributed.run t.py"], "fork: Outrider replaces torchrun inside bash -c,"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "mode"), COMMANDS)
def test_which_mode_a_command_aims_at(command: str | list[str], mode: str) -> None:
    words = command.split() if isinstance(command, str) else command
    assert mode_of(main(command=words[:1], args=words[1:]), PLACE).startswith(mode)
    assert mode_of(main(command=words), PLACE) == mode_of(main(command=words[:1], args=words[1:]), PLACE)


@pytest.mark.parametrize(("command", "mode"), COMMANDS)
def test_the_hooks_decide_the_same_where_no_file_decides(command: str | list[str], mode: str) -> None:
    name, is_certain, _ = mode.partition(":")
    if is_certain:
        assert plan(command.split() if isinstance(command, str) else command, {"PATH": ""}).mode == name


def test_a_named_script_is_the_one_inside_a_shell() -> None:
    place, words = replace(PLACE, script="train.py"), ["sh", "-c", "python prepare.py && python train.py"]
    assert mode_of(main(command=words), place) == (
        "fork: inside sh -c, the script that matches train.py becomes the template"
    )
    assert plan(words, {"OUTRIDER_SCRIPT": "train.py"}).mode == "fork"
    assert mode_of(main(command=["sh", "-c", "./train"]), place).startswith("relaunch: sh -c names no Python trainer")


def test_of_an_image_only_the_image_knows() -> None:
    assert mode_of(main(args=["train.py"]), PLACE).startswith(
        "fork if the image's entrypoint is a Python trainer, which cannot be seen here; else none:"
    )
