"""What is refused when it is applied, with the fields that are wrong: nothing is made of it."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cluster.cluster import DEADLINE, FOLDERS, Document, pod_spec

WORKER: Document = {"replicas": 1, "template": {"spec": pod_spec(FOLDERS)}}
WRONG = {
    "a job that cannot be": (
        {
            "replicaSpecs": {
                "worker": {"replicas": 2, "minReplicas": 3, "maxReplicas": 1, "template": {"spec": {"containers": []}}},
                "cook": {"replicas": 1},
            }
        },
        ("spec.replicaSpecs.worker.minReplicas", "spec.replicaSpecs.worker.template", "cook"),
    ),
    "a pattern that cannot be read": (
        {"recovery": {"rules": [{"logPattern": "Xid (", "action": "fail"}]}, "replicaSpecs": {"worker": WORKER}},
        ('spec.recovery.rules[0].logPattern: Invalid value: "Xid (": must be a regular expression: missing )',),
    ),
    "a directory that ends with its pod": (
        {"migrationDir": "/tmp/moves", "replicaSpecs": {"worker": WORKER}},
        ('"/tmp/moves": must be on a persistent volume that is mounted into the trainer; it is on no volume',),
    ),
}


def test_what_cannot_be_is_refused_with_the_fields_that_are_wrong(namespace: str, subtests: pytest.Subtests) -> None:
    for title, (spec, sentences) in WRONG.items():
        with subtests.test(title):
            said = refused(namespace, spec)
            for sentence in sentences:
                assert sentence in said


def refused(namespace: str, spec: Document) -> str:
    document = {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "wrong"},
        "spec": spec,
    }
    command = ["kubectl", "-n", namespace, "create", "-f", "-"]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode != 0
    return done.stderr
