"""Other people's job files as ElasticJobs: what is carried over, what is noted, and that the result can be run."""

from __future__ import annotations

import copy

import pytest

from master.core.cluster.conversion import converted, dlrover_run
from master.core.cluster.elastic_policy import in_our_words
from master.core.cluster.elasticjob import spec_of
from master.core.cluster.names import Document
from master.core.cluster.validation import problems

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
        "spec.elasticPolicy.rdzvBackend, rdzvEndpoint: not needed: the master tells the ranks where to meet, so there "
        "is no etcd to run."
    ]


def test_without_enable_elastic_a_job_does_not_change_its_size() -> None:
    for document in (kubedl(enableElastic=False), kubeflow()):
        assert spec_of(in_our_words(converted(document).document)).scaling == ""


def test_a_job_of_kubeflow_with_its_run_policy() -> None:
    document = kubeflow(
        elasticPolicy={"maxRestarts": 5, "metrics": [{"type": "Resource"}]},
        runPolicy={"suspend": True, "backoffLimit": 3, "schedulingPolicy": {"queue": "q"}},
        nprocPerNode="4",
    )
    made, notes, _ = converted(document)
    spec = made["spec"]
    assert (spec["suspend"], spec["elasticPolicy"], spec["nprocPerNode"]) == (True, {"maxRestarts": 5}, 4)
    assert problems(made) == []
    assert any(note.startswith("spec.elasticPolicy.metrics: not followed") for note in notes)
    for field in ("spec.runPolicy.backoffLimit", "spec.runPolicy.schedulingPolicy"):
        assert any(note.startswith(f"{field}: left out: ") for note in notes), field


def test_a_job_whose_only_pod_is_its_master() -> None:
    document = kubeflow(pytorchReplicaSpecs={"Master": role(1, CONTAINER, "Never")}, elasticPolicy={})
    made = converted(document).document
    assert made["spec"] == {"replicaSpecs": {"master": role(1, CONTAINER, "Never")}}
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
def test_the_flags_of_dlrover_run_go_into_the_spec(command: list[str]) -> None:
    made, notes, _ = converted(dlrover(command))
    spec, worker = made["spec"], made["spec"]["replicaSpecs"]["worker"]
    assert spec["nodeCheck"] == {"enabled": True, "excludeStragglers": True}
    assert spec["maxRestarts"] == 3
    assert (worker["minReplicas"], worker["maxReplicas"], worker["replicas"]) == (3, 4, 4)
    assert worker["restartLimit"] == 3
    assert any("--rdzv_conf is left out" in note for note in notes)
    assert problems(made) == []
    text = " ".join(worker["template"]["spec"]["containers"][0]["command"])
    assert "dlrover" not in text
    assert "torchrun --nproc_per_node" in text
    assert "--network-check" in text.partition("train.py")[2], "the script's own arguments stay"


def test_what_is_around_the_call_stays_as_it_is() -> None:
    container, found = dlrover_run.rewritten({"command": ["bash", "-c", SHELL]}, "c")
    (text,) = container["command"][2:]
    assert text == ("cd /x && torchrun --nproc_per_node=2 \\\n  train.py --lr '0.1' --network-check | tee log")
    assert found.is_there


@pytest.mark.parametrize("text", ["pip install dlrover-runner", "cat dlrover-run.log", "./my-dlrover-run x"])
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    container = {"command": ["bash", "-c", text]}
    changed, found = dlrover_run.rewritten(container, "c")
    assert changed == container
    assert not found.is_there


def test_what_is_known_only_in_the_pod_is_noted() -> None:
    made, notes, _ = converted(dlrover(["dlrover-run", "--nnodes=$MIN", "--max_restarts=$MORE", "t.py", "$NODE_RANK"]))
    assert "maxRestarts" not in made["spec"]
    assert any("--max_restarts is $MORE" in note for note in notes)
    assert any("--nnodes says $MIN" in note for note in notes)
    assert any("$NODE_RANK is set by DLRover" in note for note in notes)


def test_what_has_no_counterpart_is_noted_and_nothing_is_dropped_in_silence() -> None:
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
        assert any(note.startswith(f"spec.{field}: left out: ") for note in notes), field


def test_what_is_no_job_of_theirs_is_left_as_it_is() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd"}}
    assert converted(service) == (service, [], False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (kubedl(pytorchReplicaSpecs={}), "spec.pytorchReplicaSpecs: it is missing"),
        (kubedl(pytorchReplicaSpecs={"PS": role(1, CONTAINER)}), "spec.pytorchReplicaSpecs: there is no role ps"),
        (dlrover([], replicaSpecs={}), "spec.replicaSpecs: it is missing"),
        (dlrover([], distributionStrategy="CustomStrategy"), "spec.distributionStrategy: CustomStrategy is not known"),
        ({**kubedl(), "metadata": {}}, "metadata.name: it is missing"),
    ],
)
def test_a_job_that_cannot_be_one_of_ours_is_refused_with_the_path(wrong: Document, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        converted(copy.deepcopy(wrong))


def test_the_document_that_was_read_is_not_changed() -> None:
    document = dlrover(["dlrover-run", "--network-check", "t.py"])
    before = copy.deepcopy(document)
    converted(document)
    assert document == before
