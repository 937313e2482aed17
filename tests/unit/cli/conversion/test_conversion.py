"""Job files of other operators as ElasticJobs: converted fields, notes about the others, and valid results."""

from __future__ import annotations

import copy

import pytest

from outrider.cli.conversion import APPLIED, INSTEAD, converted, launchers, unpacked
from outrider.master.core.k8s.elasticjob.spec import spec_of
from outrider.master.core.k8s.elasticjob.validation import problems
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.pytorch_fields import in_our_words

CONTAINER = {"name": "pytorch", "image": "imagenet:1", "args": ["main.py", "--epochs=20"]}
POLICY = {"rdzvBackend": "etcd", "rdzvEndpoint": "etcd:2379", "minReplicas": 1, "maxReplicas": 3, "nProcPerNode": 1}


def role(replicas: int, container: Document, policy: str = "OnFailure") -> Document:
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}


def kubedl(**spec: object) -> Document:
    return {
        "apiVersion": "training.kubedl.io/v1alpha1",
        "kind": "PyTorchJob",
        "metadata": {"name": "resnet", "namespace": "elastic", "uid": "x", "resourceVersion": "7"},
        "spec": {
            "enableElastic": True,
            "elasticPolicy": POLICY,
            "pytorchReplicaSpecs": {"Master": role(1, CONTAINER, "ExitCode"), "Worker": role(1, CONTAINER)},
            **spec,
        },
    }


def kubeflow(**spec: object) -> Document:
    document = kubedl(**spec)
    document["apiVersion"] = "kubeflow.org/v1"
    del document["spec"]["enableElastic"]
    return document


def dlrover(command: list[str], **spec: object) -> Document:
    worker = {**role(4, {"name": "main", "image": "x", "command": command}), "restartCount": 3}
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "mnist"},
        "spec": {"distributionStrategy": "AllreduceStrategy", "replicaSpecs": {"worker": worker}, **spec},
    }


def test_a_job_of_kubedl_keeps_its_master_its_policy_and_its_restarts() -> None:
    made, notes, is_changed = converted(kubedl())
    assert is_changed
    assert made["metadata"] == {"name": "resnet", "namespace": "elastic"}
    assert made["spec"] == {
        "enableElastic": True,
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "nProcPerNode": 1},
        "replicaSpecs": {"master": role(1, CONTAINER, "ExitCode"), "worker": role(1, CONTAINER)},
    }
    assert problems(made) == []
    spec = spec_of(in_our_words(made))
    assert (spec.min_members, spec.max_members, spec.has_master, spec.scaling) == (2, 4, True, "throughput")
    assert notes == [
        "spec.elasticPolicy.rdzvBackend, rdzvEndpoint: ignored: the master gives the ranks their rendezvous address, "
        "so no etcd is needed."
    ]


def test_without_enable_elastic_a_job_does_not_change_its_size() -> None:
    unsaid = kubedl()
    del unsaid["spec"]["enableElastic"]
    for document in (kubedl(enableElastic=False), unsaid, kubeflow()):
        assert spec_of(in_our_words(converted(document).document)).scaling == ""


def test_a_job_of_kubeflow_with_its_run_policy() -> None:
    document = kubeflow(
        elasticPolicy={"maxRestarts": 5, "metrics": [{"type": "Resource"}]},
        runPolicy={
            "suspend": True,
            "backoffLimit": 3,
            "ttlSecondsAfterFinished": 60,
            "cleanPodPolicy": "None",
            "schedulingPolicy": {"queue": "q", "priorityClass": "high"},
            "managedBy": "kueue",
        },
        nprocPerNode="4",
    )
    made, notes, _ = converted(document)
    spec = made["spec"]
    assert (spec["suspend"], spec["elasticPolicy"], spec["nprocPerNode"]) == (True, {"maxRestarts": 5}, 4)
    assert spec["runPolicy"] == {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": 60}
    assert "maxRestarts" not in spec, "the elasticPolicy says it"
    assert {each["template"]["spec"]["priorityClassName"] for each in spec["replicaSpecs"].values()} == {"high"}
    assert problems(made) == []
    assert any(note.startswith("spec.elasticPolicy.metrics: ignored") for note in notes)
    for field in ("spec.runPolicy.managedBy", "spec.runPolicy.schedulingPolicy.queue", "spec.runPolicy.backoffLimit"):
        assert any(note.startswith(f"{field}: not converted: ") for note in notes), field


def test_fields_of_kubedl_beside_its_roles_become_its_run_policy() -> None:
    made, notes, _ = converted(kubedl(backoffLimit=3, activeDeadlineSeconds=60, elasticPolicy={}, enableElastic=False))
    assert made["spec"]["maxRestarts"] == 3
    assert made["spec"]["runPolicy"] == {"activeDeadlineSeconds": 60}
    assert any(note.startswith("spec.backoffLimit: converted to spec.maxRestarts") for note in notes)
    assert problems(made) == []


def test_a_job_whose_only_pod_is_its_master() -> None:
    document = kubeflow(pytorchReplicaSpecs={"Master": role(1, CONTAINER, "Never")}, elasticPolicy={})
    made, notes, _ = converted(document)
    assert made["spec"] == {"replicaSpecs": {"master": role(1, CONTAINER, "Never")}}
    assert any("Master.restartPolicy: Never: the job fails with the first failed rank" in note for note in notes)
    assert problems(made) == []


SHELL = (
    "cd /x && dlrover-run --network-check --exclude-straggler --nnodes=3:$WORKER_NUM \\\n  --nproc_per_node=2 "
    "--max_restarts=3  --rdzv_conf pend_timeout=600 \\\n  train.py --lr '0.1' --network-check | tee log"
)


@pytest.mark.parametrize(
    "command",
    [
        ["/bin/bash", "-c", SHELL],
        ["dlrover-run", "--network-check", "--exclude-straggler", "--nnodes=3:$(WORKER_NUM)", "--max_restarts", "3",
         "--rdzv_conf=pend_timeout=600", "--nproc_per_node=2", "train.py", "--lr", "0.1", "--network-check"],
        ["python", "-m", "dlrover.trainer.torch.elastic_run", "--exclude-straggler", "--nnodes", "3:4",
         "--max-restarts=3", "--rdzv-conf", "x=1", "--nproc_per_node", "2", "train.py", "--network-check"],
    ],
    ids=["in a shell", "as words", "as a module"],
)  # fmt: skip
def test_the_flags_of_launchers_go_into_the_spec(command: list[str]) -> None:
    made, notes, _ = converted(dlrover(command))
    spec, worker = made["spec"], made["spec"]["replicaSpecs"]["worker"]
    assert spec["nodeCheck"] == {"enabled": True, "excludeStragglers": True}
    assert spec["maxRestarts"] == 3
    assert (worker["minReplicas"], worker["maxReplicas"], worker["replicas"]) == (3, 4, 4)
    assert worker["restartLimit"] == 3
    assert any("--rdzv_conf is not converted" in note for note in notes)
    assert problems(made) == []
    text = " ".join(worker["template"]["spec"]["containers"][0]["command"])
    assert "dlrover" not in text
    assert "torchrun --nproc_per_node" in text
    assert "--network-check" in text.partition("train.py")[2], "the script's own arguments stay"


def test_the_unit_of_nodes_goes_into_the_spec() -> None:
    made = converted(dlrover(["dlrover-run", "--node_unit", "2", "--nnodes=2:4", "t.py"])).document
    assert made["spec"]["nodeUnit"] == 2
    assert problems(made) == []


def test_the_text_around_the_call_stays_unchanged() -> None:
    container, found = launchers.rewritten({"command": ["bash", "-c", SHELL]}, "c")
    (text,) = container["command"][2:]
    assert text == ("cd /x && torchrun --nproc_per_node=2 \\\n  train.py --lr '0.1' --network-check | tee log")
    assert found.is_there


@pytest.mark.parametrize("text", ["pip install dlrover-runner", "cat dlrover-run.log", "./my-dlrover-run x"])
def test_text_that_only_resembles_a_call_stays_unchanged(text: str) -> None:
    container = {"command": ["bash", "-c", text]}
    changed, found = launchers.rewritten(container, "c")
    assert changed == container
    assert not found.is_there


def test_values_that_are_known_only_in_the_pod_are_noted() -> None:
    made, notes, _ = converted(dlrover(["dlrover-run", "--nnodes=$MIN", "--max_restarts=$MORE", "t.py", "$NODE_RANK"]))
    assert "maxRestarts" not in made["spec"]
    assert any("--max_restarts is $MORE" in note for note in notes)
    assert any("--nnodes has $MIN" in note for note in notes)
    assert any("$NODE_RANK is not set here" in note for note in notes)


def test_each_field_without_a_counterpart_is_noted() -> None:
    document = dlrover(["torchrun", "t.py"], optimizeMode="single-job", enableDynamicSharding=True)
    document["spec"]["replicaSpecs"]["worker"]["autoScale"] = True
    document["spec"]["replicaSpecs"]["dlrover-master"] = {"replicas": 1}
    notes = converted(document).notes
    for field in (
        "optimizeMode",
        "enableDynamicSharding",
        "replicaSpecs.worker.autoScale",
        "replicaSpecs.dlrover-master",
    ):
        assert any(note.startswith(f"spec.{field}: not converted: ") for note in notes), field


def torchrun(command: list[str]) -> tuple[list[str], str]:
    container = {"name": "pytorch", "image": "x", "command": command}
    made, notes, _ = converted(kubeflow(pytorchReplicaSpecs={"Worker": role(2, container)}, elasticPolicy={}))
    return made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["command"], " ".join(notes)


@pytest.mark.parametrize(
    ("command", "becomes"),
    [
        (["dlrover-run", "t.py"], "torchrun t.py"),
        (["/opt/conda/bin/dlrover-run", "--nproc_per_node", "2", "t.py"], "torchrun --nproc_per_node 2 t.py"),
        (["python3", "-u", "-m", "dlrover.trainer.torch.elastic_run", "--nproc_per_node=2", "t.py"],
         "torchrun --nproc_per_node=2 t.py"),
        (["nice", "python3.10", "-m", "dlrover.trainer.torch.elastic_run", "t.py"], "nice torchrun t.py"),
        (["dlrover-run", "-m", "pkg.train", "--nnodes=9"], "torchrun -m pkg.train --nnodes=9"),
        (["dlrover-run", "-r", "3", "-t", "3", "t.py"], "torchrun -r 3 -t 3 t.py"),
        (["dlrover-run", "--no-python", "--network-check", "bash", "-c", "x"], "torchrun --no-python bash -c x"),
        (["env", "A=1", "dlrover-run", "--auto-config", "t.py"], "env A=1 torchrun t.py"),
        (["dlrover-run", "--ucp_device_type", "cpu", "--precheck", "1", "t.py"], "torchrun t.py"),
        (["sh", "-c", "A=1 B='x y' dlrover-run --network-check t.py"], "sh -c A=1 B='x y' torchrun t.py"),
        (["sh", "-c", "exec dlrover-run t.py"], "sh -c exec torchrun t.py"),
        (["sh", "-c", "/opt/bin/dlrover-run t.py"], "sh -c torchrun t.py"),
        (["sh", "-c", "$HOME/bin/dlrover-run t.py"], "sh -c torchrun t.py"),
        (["sh", "-c", "python -u -m dlrover.trainer.torch.elastic_run --nnodes 1 t.py"], "sh -c torchrun t.py"),
        (["sh", "-c", "python3.11  -m \\\n dlrover.trainer.torch.elastic_run t.py"], "sh -c torchrun t.py"),
        (["sh", "-c", "/usr/bin/python3 -m dlrover.trainer.torch.elastic_run t.py"], "sh -c torchrun t.py"),
        (["sh", "-c", "dlrover-run --nnodes=\"$NODE_NUM\" --nproc_per_node=\"$N\" t.py"],
         "sh -c torchrun --nproc_per_node=\"$N\" t.py"),
        (["sh", "-c", "(dlrover-run --nnodes 1:2 t.py) && echo ok"], "sh -c (torchrun t.py) && echo ok"),
        (["sh", "-c", "if true; then dlrover-run t.py; fi"], "sh -c if true; then torchrun t.py; fi"),
        (["sh", "-c", "dlrover-run --network-check"], "sh -c torchrun"),
        (["sh", "-c", "dlrover-run a.py && dlrover-run b.py"], "sh -c torchrun a.py && torchrun b.py"),
        (["sh", "-c", "dlrover-run --nproc_per_node=$(nvidia-smi -L | wc -l) --network-check t.py"],
         "sh -c torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) t.py"),
        (["sh", "-c", "dlrover-run --rdzv_conf 'join_timeout=600,pend_timeout=6' t.py 2>&1 | tee l"],
         "sh -c torchrun t.py 2>&1 | tee l"),
        (["sh", "-c", "set -e\npip install x\ndlrover-run \\\n  --max-restarts=3 \\\n  t.py \\\n  --lr 1\n"],
         "sh -c set -e\npip install x\ntorchrun \\\n  t.py \\\n  --lr 1\n"),
    ],
)  # fmt: skip
def test_dlrover_run_is_replaced_in_any_form(command: list[str], becomes: str) -> None:
    worker = converted(dlrover(command)).document["spec"]["replicaSpecs"]["worker"]
    assert " ".join(worker["template"]["spec"]["containers"][0]["command"]) == becomes


def test_a_job_of_dlrover_keeps_whether_it_is_suspended_and_its_restarts_if_it_says_so() -> None:
    document = dlrover(["dlrover-run", "t.py"], suspend=True)
    assert (made := converted(document).document["spec"])["suspend"] is True
    assert made["replicaSpecs"]["worker"]["restartLimit"] == 3
    del document["spec"]["suspend"], document["spec"]["replicaSpecs"]["worker"]["restartCount"]
    made = converted(document).document["spec"]
    assert "suspend" not in made
    assert "restartLimit" not in made["replicaSpecs"]["worker"]


def test_parts_of_dlrover_that_would_not_work_here_are_noted() -> None:
    document = dlrover(["python", "-m", "dlrover.trainer.entry.local_entry"])
    document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["restartPolicy"] = "Always"
    made, notes, _ = converted(document)
    at = "spec.replicaSpecs.worker.template.spec"
    assert made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["restartPolicy"] == "Never"
    assert f"{at}.restartPolicy: Never instead of Always, which would restart pods that succeeded." in notes
    assert any(note.startswith(f"{at}.containers[0]: dlrover.trainer.entry") for note in notes)


def test_a_launchers_flags_with_the_same_meaning_here_stay_in_args() -> None:
    document = kubeflow()
    container = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    words = {"command": ["torchrun", "--nproc_per_node=2"], "args": ["t.py"]}
    container |= words
    found = converted(document).document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    assert {part: found[part] for part in words} == words


@pytest.mark.parametrize(("given", "becomes"), [("4", 4), (2, 2), ("auto", None)])
def test_processes_that_are_counted_only_in_the_pod_are_noted(given: object, becomes: int | None) -> None:
    made, notes, _ = converted(kubeflow(nprocPerNode=given))
    assert made["spec"].get("nprocPerNode") == becomes
    assert any("spec.nprocPerNode: auto is known only in the" in note for note in notes) == (becomes is None)


def test_a_command_may_be_cut_in_command_and_args() -> None:
    document = dlrover(["dlrover-run"])
    container = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["args"] = ["--network-check", "--nnodes=1:4", "--nproc_per_node=2", "t.py"]
    made = converted(document).document["spec"]
    found = made["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    assert found["command"] == ["torchrun"]
    assert found["args"] == ["--nproc_per_node=2", "t.py"]
    assert made["nodeCheck"] == {"enabled": True}
    assert made["replicaSpecs"]["worker"]["minReplicas"] == 1


@pytest.mark.parametrize(
    ("command", "becomes"),
    [
        (["torchrun", "--nnodes=1:3", "--node_rank=0", "t.py"], "torchrun --nnodes=1:3 --node_rank=0 t.py"),
        (["sh", "-c", "torchrun --nproc_per_node=8 \\\n --nnodes $WORLD_SIZE --node_rank $RANK t.py $RANK"],
         "sh -c torchrun --nproc_per_node=8 t.py $RANK"),
        (["sh", "-c", "python -m torch.distributed.launch --use_env --master_addr=${MASTER_ADDR} t.py"],
         "sh -c python -m torch.distributed.launch --use_env t.py"),
        (["python", "-m", "torch.distributed.run", "--rdzv_endpoint=$(PET_RDZV_ENDPOINT)", "-m", "pkg"],
         "python -m torch.distributed.run -m pkg"),
        (["sh", "-c", "torchrun  --nproc_per_node=8 \\\n  t.py"], "sh -c torchrun  --nproc_per_node=8 \\\n  t.py"),
    ],
)  # fmt: skip
def test_only_rendezvous_flags_with_unset_variables_are_removed_from_torchrun(command: list[str], becomes: str) -> None:
    changed, notes = torchrun(command)
    assert " ".join(changed) == becomes
    assert ("is not converted" in notes) == (changed != command)
    assert ("$RANK is not set here" in notes) == ("t.py $RANK" in becomes)


def test_a_variable_that_the_container_sets_itself_is_not_missed() -> None:
    assert "is not set here" not in torchrun(["sh", "-c", "RANK=1 python t.py $RANK"])[1]


def test_beside_a_master_pods_have_rank_and_world_size() -> None:
    asking = role(
        1, {"name": "pytorch", "image": "x", "command": ["sh", "-c", "echo $RANK $PET_NNODES; torchrun t.py"]}
    )
    notes = " ".join(converted(kubeflow(pytorchReplicaSpecs={"Master": asking, "Worker": asking})).notes)
    assert "$RANK is not set here" not in notes
    assert "$PET_NNODES is not set here" in notes


def test_the_trainer_is_the_container_of_their_name() -> None:
    job = kubeflow()
    containers = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] = [
        {"name": "log", "image": "x"},
        *containers,
    ]
    roles = converted(job).document["spec"]["replicaSpecs"]
    assert roles["worker"]["template"]["metadata"]["annotations"] == {"outrider.dev/container": "pytorch"}
    assert "metadata" not in roles["master"]["template"]


def test_a_role_without_members_is_left_out_but_there_are_always_workers() -> None:
    made, notes, _ = converted(
        kubeflow(pytorchReplicaSpecs={"Master": role(1, CONTAINER), "Worker": role(0, CONTAINER)}, elasticPolicy={})
    )
    assert list(made["spec"]["replicaSpecs"]) == ["master"]
    assert "spec.pytorchReplicaSpecs.Worker: not converted: it has 0 replicas." in notes
    job = dlrover(["python", "t.py"], distributionStrategy="ParameterServerStrategy")
    job["spec"]["replicaSpecs"]["worker"]["replicas"] = 0
    job["spec"]["replicaSpecs"]["ps"] = role(0, CONTAINER)
    made, notes, _ = converted(job)
    assert {name: each["replicas"] for name, each in made["spec"]["replicaSpecs"].items()} == {"worker": 1}
    assert "spec.replicaSpecs.worker.replicas: 1 instead of 0: a job must have at least one." in notes


def tfjob(**roles: int) -> Document:
    container = {"name": "tensorflow", "image": "x", "command": ["python", "t.py"]}
    specs = {name: role(count, container, "Never") for name, count in roles.items()}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "click"},
            "spec": {"tfReplicaSpecs": specs, "successPolicy": "AllWorkers"}}  # fmt: skip


def test_a_tfjob_is_a_job_with_parameter_servers() -> None:
    made, notes, _ = converted(tfjob(PS=2, Worker=3, Master=1, Eval=1))
    sizes = {name: each["replicas"] for name, each in made["spec"]["replicaSpecs"].items()}
    assert sizes == {"ps": 2, "worker": 3, "chief": 1, "evaluator": 1}
    assert problems(made) == []
    assert any(note.startswith("spec.successPolicy: not converted: ") for note in notes)
    assert list(converted(tfjob(Chief=1)).document["spec"]["replicaSpecs"]) == ["worker"]


def test_a_tfjob_of_workers_alone_is_an_ordinary_job() -> None:
    made, _, _ = converted(tfjob(Worker=3))
    assert {name: each["replicas"] for name, each in made["spec"]["replicaSpecs"].items()} == {"worker": 3}
    assert problems(made) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"Worker": 2, "Chief": 1}, "Forbidden: without PS"),
        ({"Eval": 1}, "Forbidden: without PS"),
        ({"Boss": 1}, 'Unsupported value: "Boss": supported values: "PS", "Worker", "Chief", "Evaluator"'),
        ({}, "Required value"),
    ],
)
def test_a_tfjob_that_cannot_be_converted_is_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=f"spec.tfReplicaSpecs: .*{said}"):
        converted(tfjob(**wrong))


def test_fields_of_the_server_are_dropped_and_fields_of_the_user_are_named() -> None:
    job = kubedl(cronPolicy={"schedule": "0 * * * *"}, whatever=1)
    job["metadata"] |= {"annotations": {APPLIED: "{}", "a": "b"}, "finalizers": ["x/y"]}
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["spotReplicaSpec"] = {}
    made, notes, _ = converted(job)
    assert made["metadata"]["annotations"] == {"a": "b"}
    for path in ("metadata.finalizers", "spec.cronPolicy", "spec.whatever",
                 "spec.pytorchReplicaSpecs.Worker.spotReplicaSpec"):  # fmt: skip
        assert any(note.startswith(f"{path}: not converted: ") for note in notes), path
    assert not any("uid" in note for note in notes)


def test_the_server_may_generate_the_name() -> None:
    job = kubedl()
    job["metadata"] = {"generateName": "train-"}
    assert converted(job).document["metadata"] == {"generateName": "train-"}


def test_the_note_for_another_kind_of_job_says_what_to_do() -> None:
    for group, kind in INSTEAD:
        _made, notes, is_changed = converted({"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "x"}})
        assert not is_changed
        assert notes[0].startswith(f"{kind} of {group}: not converted: ")


def test_the_queue_of_a_job_is_that_of_its_pods() -> None:
    job, label = kubeflow(), "kueue.x-k8s.io/queue-name"
    job["metadata"]["labels"] = {label: "gpus"}
    made, notes, _ = converted(job)
    roles = made["spec"]["replicaSpecs"].values()
    assert [each["template"]["metadata"]["labels"] for each in roles] == [{label: "gpus"}] * 2
    assert any(note.startswith(f"metadata.labels[{label}]: moved to the pods") for note in notes)


def test_a_list_is_unpacked() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd"}}
    inner = {"apiVersion": "v1", "kind": "List", "items": [kubedl()]}
    assert list(unpacked([service, {"apiVersion": "v1", "kind": "List", "items": [inner, service]}])) == [
        service, kubedl(), service,
    ]  # fmt: skip


def test_a_document_that_is_not_a_job_stays_unchanged() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd"}}
    assert converted(service) == (service, [], False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (kubedl(pytorchReplicaSpecs={}), "spec.pytorchReplicaSpecs: Required value"),
        (kubedl(pytorchReplicaSpecs={"PS": role(1, CONTAINER)}), 'spec.pytorchReplicaSpecs: Unsupported value: "PS"'),
        (dlrover([], replicaSpecs={}), "spec.replicaSpecs: Required value"),
        (dlrover([], distributionStrategy="Custom"), 'spec.distributionStrategy: Unsupported value: "Custom"'),
        ({**kubedl(), "metadata": {}}, "metadata.name: Required value"),
    ],
)
def test_a_job_that_cannot_be_converted_is_refused_with_the_path(wrong: Document, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        converted(copy.deepcopy(wrong))


def test_the_document_that_was_read_is_not_changed() -> None:
    document = dlrover(["dlrover-run", "--network-check", "t.py"])
    before = copy.deepcopy(document)
    converted(document)
    assert document == before
