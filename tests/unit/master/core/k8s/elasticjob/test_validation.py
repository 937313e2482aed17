"""Templates that could not be supervised are refused with the ElasticJob that has them."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.master.core.k8s.elasticjob.validation import problems
from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.documents import job, template, worker

TEMPLATE = "spec.replicaSpecs.worker.template"
MAIN: Document = {"name": "main", "image": "train:1"}


def with_template(**spec: Any) -> Document:
    return job({"worker": worker(replicas=2) | {"template": template(**spec)}})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"hostPID": True},
         "spec.hostPID: Invalid value: true: must be false, because the sidecar needs shareProcessNamespace instead"),
        ({"shareProcessNamespace": False},
         "spec.shareProcessNamespace: Invalid value: false: must be true or unset, so that the sidecar can watch the "),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}},
         "spec.nodeSelector: Forbidden: it makes this a Windows pod; the hooks and the sidecar need Linux"),
        ({"containers": [{**MAIN, "command": "python train.py"}]},
         'spec.containers[0].command: Invalid value: "python train.py": must be a list'),
        ({"containers": [{**MAIN, "args": ["--lr", 1]}]},
         "spec.containers[0].args[1]: Invalid value: 1: must be a string; put it in quotes"),
        ({"containers": [{**MAIN, "env": [{"name": "A", "value": 1}]}]},
         "spec.containers[0].env[0].value: Invalid value: 1: must be a string; put it in quotes"),
        ({"containers": [MAIN, {**MAIN, "name": "outrider-sidecar"}]},
         "spec.containers[1].name: Forbidden: outrider-sidecar is the name of an injected container"),
        ({"volumes": [{"name": "outrider"}]},
         "spec.volumes[0].name: Forbidden: outrider is the name of an injected volume"),
        ({"containers": [{**MAIN, "env": [{"name": "OUTRIDER_DIR", "value": "/x"}]}]},
         "spec.containers[0].env[0].name: Forbidden: the injection sets OUTRIDER_DIR; is container main supervised by"),
    ],
)  # fmt: skip
def test_what_could_not_be_supervised_is_refused_with_the_path_of_the_field(spec: Document, said: str) -> None:
    (problem,) = problems(with_template(**spec))
    assert problem.startswith(f"{TEMPLATE}.{said}")


def test_all_errors_are_reported_at_once_and_each_only_once() -> None:
    wrong = with_template(hostPID=True, containers=["main"], restartPolicy="Sometimes")
    assert problems(wrong) == [
        f'{TEMPLATE}.spec.restartPolicy: Unsupported value: "Sometimes": supported values: "OnFailure", "Never"',
        f'{TEMPLATE}.spec.containers[0]: Invalid value: "main": must be an object with name and image',
    ]


def test_an_annotation_that_cannot_be_meant_is_refused_wherever_it_stands() -> None:
    wrong = with_template()
    wrong["metadata"]["annotations"] = {"outrider.dev/container": "trainer"}
    (problem,) = problems(wrong)
    assert problem.startswith(f'{TEMPLATE}.metadata.annotations[outrider.dev/container]: Unsupported value: "trainer"')
    wrong["metadata"]["annotations"] = {"outrider.dev/max-restarts": "many"}
    (problem,) = problems(wrong)
    assert problem.startswith(f"{TEMPLATE}.metadata.annotations[outrider.dev/max-restarts]: Invalid value")


def test_a_job_that_is_well_or_makes_no_pods_has_no_problems() -> None:
    assert problems(job()) == []
    adopts = {"apiVersion": "v1", "kind": "Pod", "name": "a"}
    assert problems(job({"worker": {"replicas": 2}}, adopts=adopts)) == []
