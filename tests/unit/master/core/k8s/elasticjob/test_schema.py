"""The schema of the CustomResourceDefinition, as it judges an ElasticJob without an API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.master.core.k8s.elasticjob import schema
from outrider.master.core.k8s.elasticjob.validation import problems
from outrider.master.core.k8s.values.bounds import MOST_VALUES
from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.documents import job, worker

DEFINITION = Path(__file__).parents[6] / "manifests" / "base" / "elasticjobs.yaml"


def test_it_is_the_one_that_is_installed() -> None:
    assert Path(schema.__file__).with_name("elasticjobs.yaml").resolve() == DEFINITION


def test_all_errors_are_reported_at_once_by_the_path_of_each_field() -> None:
    wrong = job({"worker": worker(replicas="2", restartPolicy="Often")}, spares=-1, suspend="yes")
    wrong["spec"]["recovery"] = {"rules": [{"exitCodes": [1, 256]}]}
    assert sorted(problems(wrong)) == [
        "spec.recovery.rules[0].action: Required value: must be fail, restart, replace or replaceNode",
        "spec.recovery.rules[0].exitCodes[1]: Invalid value: 256: must be an integer between 0 and 255",
        'spec.replicaSpecs.worker.replicas: Invalid value: "2": must be an integer between 1 and 32768',
        'spec.replicaSpecs.worker.restartPolicy: Unsupported value: "Often": supported values: "Always", "ExitCode", '
        '"Never", "OnFailure"',
        "spec.spares: Invalid value: -1: must be an integer between 0 and 512",
        'spec.suspend: Invalid value: "yes": must be true or false',
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"recovery": "fast"},
         'spec.recovery: Invalid value: "fast": must be an object with silentAfter, replaceAfter, stopGrace,'),
        ({"recovery": {"hang": {"enabled": 1}}},
         "spec.recovery.hang.enabled: Invalid value: 1: must be true or false"),
        ({"recovery": {"exitCodes": {"retryable": [0]}}},
         "spec.recovery.exitCodes.retryable[0]: Invalid value: 0: must be an integer between 1 and 255"),
        ({"recovery": {"rules": [None]}},
         "spec.recovery.rules[0]: Invalid value: null: must be an object with exitCodes, logPattern, nodeCondition,"),
        ({"scaling": {"timeZone": "x" * 101}},
         "spec.scaling.timeZone: Too long: may not be more than 100 characters"),
        ({"scaling": {"schedule": [{"cron": 8, "replicas": 1}]}},
         "spec.scaling.schedule[0].cron: Invalid value: 8: must be a string of at most 100 characters, for example 0 "),
        ({"checkpointPath": 7},
         "spec.checkpointPath: Invalid value: 7: must be a string of at most 1024 characters"),
        ({"nodeUnit": 2.0},
         "spec.nodeUnit: Invalid value: 2.0: must be an integer of at least 1"),
        ({"nodeUnit": True},
         "spec.nodeUnit: Invalid value: true: must be an integer of at least 1"),
        ({"adopts": {"apiVersion": "v1", "kind": "Pod", "name": "a\n"}},
         'spec.adopts.name: Invalid value: "a\\n": must match ^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$, for example train'),
    ],
)  # fmt: skip
def test_what_the_api_server_would_refuse_is_refused_in_words(spec: Document, said: str) -> None:
    (sentence,) = schema.objections(spec)
    assert sentence.startswith(said)


def test_null_counts_as_missing_and_unknown_fields_are_not_checked() -> None:
    assert schema.objections({"spares": None, "recovery": {"hang": None}, "scaling": {"schedule": None}}) == []
    assert schema.objections({"notYet": 7, "scaling": {"notYet": 7}}) == []


def test_durations_and_amounts_are_left_to_those_who_read_them() -> None:
    assert schema.objections({"checkpointMemory": [], "recovery": {"silentAfter": "soon", "hang": {"step": {}}}}) == []


def test_of_many_errors_the_first_are_reported_and_none_is_long() -> None:
    rules = [{"action": "x" * 60, "exitCodes": [{}], "after" * 10: 1} for _ in range(MOST_VALUES // 7)]
    for wrong in (job(recovery={"rules": rules}), job({f"{n}" * 99: {"replicas": 0} for n in range(500)})):
        said = problems(wrong)
        assert len(said) == schema.MOST_ERRORS
        assert max(map(len, said)) < 250


def nodes(node: Document) -> Iterator[Document]:
    yield node
    inner = [*node.get("properties", {}).values(), node.get("items"), node.get("additionalProperties")]
    for each in inner:
        if isinstance(each, dict):
            yield from nodes(each)


def test_every_field_can_say_what_it_may_be() -> None:
    said = [schema.allowed(each) for each in nodes(schema.SPEC) if not each.get("x-kubernetes-int-or-string")]
    assert len(said) > 50
    assert all(said)


def test_only_a_whole_number_or_a_text_has_alternatives() -> None:
    """They are not looked at here."""
    for node in nodes(schema.SPEC):
        assert ("anyOf" in node) == bool(node.get("x-kubernetes-int-or-string"))
        assert not {"allOf", "oneOf", "not"} & node.keys()
