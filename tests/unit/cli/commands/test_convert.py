"""`outrider convert`: a file with jobs of other operators, and the notes about it."""

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


def test_jobs_are_converted_and_other_documents_are_printed_unchanged() -> None:
    done = convert(JOB)
    assert done.exit_code == 0, done.stderr
    job, service = yaml.safe_load_all(done.stdout)
    assert (job["apiVersion"], job["kind"]) == ("outrider.dev/v1alpha1", "ElasticJob")
    assert job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["command"] == ["torchrun", "t.py"]
    assert service["kind"] == "Service"
    assert "outrider: mnist: spec.optimizeMode: not converted" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "must be YAML or JSON"),
        ("kind: Service\napiVersion: v1", "must have a job to convert, found only Service; supported: PyTorchJob of"),
        (
            JOB.replace("worker:", "x:").replace("replicaSpecs", "replicas"),
            "ElasticJob: spec.replicaSpecs: Required value",
        ),
    ],
)
def test_a_file_that_cannot_be_converted_is_refused(text: str, said: str) -> None:
    done = convert(text)
    assert done.exit_code != 0
    assert said in done.stderr
    assert done.stdout == ""
