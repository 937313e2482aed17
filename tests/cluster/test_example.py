"""The job that the guide begins with, exactly as it lies in examples/."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cluster.cluster import LONG, Pods, until

FILE = Path(__file__).parents[2] / "examples" / "elasticjob" / "digits.yaml"


def data() -> Path:
    """The folder of the nodes, and of this machine, that is the example's volume."""
    document = yaml.safe_load(FILE.read_text())
    (volume,) = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["volumes"]
    return Path(volume["hostPath"]["path"])


@pytest.mark.xdist_group("digits")
def test_the_example_trains_to_its_end(namespace: str, tmp_path: Path) -> None:
    folder = data()
    shutil.rmtree(folder, ignore_errors=True)
    job = Pods(namespace, "digits", tmp_path)
    job.kubectl("apply", "-f", str(FILE))
    status = until(lambda: job.status() if job.status().get("phase") == "Succeeded" else None, job.story, LONG)
    assert status["exitCode"] == 0
    result = json.loads((folder / "out" / "result.json").read_text())
    assert result["accuracy"] > 0.9
    assert result["epochs"] == 40
    members = [f"digits-worker-{number}" for number in range(4)]
    until(lambda: {job.pods()[name]["status"]["phase"] for name in members} == {"Succeeded"}, job.story)
