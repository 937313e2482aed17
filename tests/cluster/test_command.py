"""The command that a torchrun user has, as it stands, in an image that knows nothing of Outrider."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cluster.cluster import LONG, pod_spec, until
from tests.cluster.conftest import MakePods

SCRIPT = Path(__file__).resolve().parents[2] / "examples/digits/train.py"
COMMAND = (
    "(sleep 1 &) && torchrun --nnodes=3:$WORKER_NUM --nproc_per_node=2 --max_restarts=3 --rdzv_conf pend_timeout=600 "
    "train.py --epochs 5"
)


def test_a_torchrun_inside_bash_trains_to_its_end_in_a_world_of_four_pods_and_two_processes_each(
    pods: MakePods,
) -> None:
    job = pods("command")
    shutil.copy(SCRIPT, job.folder / "train.py")
    spec = pod_spec(job.folder, "bash", "-c", COMMAND, workingDir="/work")
    worker = {"replicas": 4, "minReplicas": 3, "template": {"spec": spec}}
    document = {"apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": job.name}}
    patient = {"silentAfter": "20s", "startPatience": "600s"}  # all four are waited for, on a busy machine too
    job.create({**document, "spec": {"recovery": patient, "replicaSpecs": {"worker": worker}}})

    until(lambda: job.status().get("phase") == "Succeeded", job.story, LONG)
    assert [member["mode"] for member in job.status()["members"]] == ["fork"] * 4
    until(lambda: [pod["status"]["phase"] for pod in job.pods().values()] == ["Succeeded"] * 4, job.story)
    for name, pod in job.pods().items():
        trainer = pod["spec"]["containers"][0]
        assert trainer["command"] == ["/outrider/hooks/outrider-launch", "bash", "-c", COMMAND]
        assert {"name": "WORKER_NUM", "value": "4"} in trainer["env"]
        assert (
            "Outrider replaces torchrun inside bash -c"
            in pod["metadata"]["annotations"]["outrider.dev/supervision-mode"]
        )
        worlds = [(line["group_world_size"], line["world_size"]) for line in job.rendezvous(name)]
        assert worlds[-1] == ("4", "8")
    result = json.loads((job.folder / "digits-out/result.json").read_text())
    assert (result["epochs"], result["steps"]) == (5, 60)  # 1437 digits, 8 ranks, batches of 16: 12 steps each
