"""`outrider convert`: a file of somebody else's jobs, and what is said of it."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner, Result

from outrider.cli.main import main

JOB = """
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {name: mnist}
spec:
  optimizeMode: single-job
  replicaSpecs:
    worker:
      replicas: 2
      template: {spec: {containers: [{name: main, image: x, command: [dlrover-run, --network-check, t.py]}]}}
---
apiVersion: v1
kind: Service
metadata: {name: etcd}
"""


def convert(text: str) -> Result:
    return CliRunner().invoke(main, ["convert", "-f", "-"], input=text)


def test_jobs_are_converted_and_the_rest_is_printed_as_it_is() -> None:
    done = convert(JOB)
    assert done.exit_code == 0, done.stderr
    job, service = yaml.safe_load_all(done.stdout)
    assert (job["apiVersion"], job["kind"]) == ("outrider.dev/v1alpha1", "ElasticJob")
    assert job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["command"] == ["torchrun", "t.py"]
    assert service["kind"] == "Service"
    assert "outrider: mnist: spec.optimizeMode: left out" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is no YAML"),
        ("kind: Service\napiVersion: v1", "there is nothing to convert in it, only Service; known are PyTorchJob of"),
        (
            JOB.replace("worker:", "x:").replace("replicaSpecs", "replicas"),
            "ElasticJob: spec.replicaSpecs: it is missing",
        ),
    ],
)
def test_a_file_that_cannot_be_converted_is_refused(text: str, said: str) -> None:
    done = convert(text)
    assert done.exit_code != 0
    assert said in done.stderr
    assert done.stdout == ""
