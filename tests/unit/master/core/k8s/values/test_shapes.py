"""Documents of another shape than the types say: which field it is, and that none hides the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.master.core.k8s.elasticjob import accepted_spec
from outrider.master.core.k8s.values import bounds, nesting, shapes
from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.documents import job

POD: Document = {"metadata": {"name": "gpt-0", "namespace": "research", "uid": "u"}, "spec": {}, "status": {}}


def pod(**fields: Any) -> Document:
    return {**POD, **fields}


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def test_a_document_says_whose_it_is() -> None:
    assert str(shapes.check(POD, shapes.POD)) == "research/gpt-0"
    assert str(shapes.identity_of({"metadata": {"name": "node-1"}})) == "node-1"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "metadata: Invalid value: null: must be an object with name and uid"),
        (pod(metadata="gpt-0"), 'metadata: Invalid value: "gpt-0": must be an object with name and uid'),
        (pod(metadata={"uid": "u"}), "metadata.name: Invalid value: null: must be a string"),
        (pod(metadata={"name": "gpt-0", "uid": 7}), "metadata.uid: Invalid value: 7: must be a string"),
        (pod(metadata={"name": "p", "labels": ["a"]}), 'metadata.labels: Invalid value: ["a"]: must be an object'),
        (pod(metadata={"name": "p", "annotations": {"a.b/c": 1}}),
         "metadata.annotations[a.b/c]: Invalid value: 1: must be a string"),
        (pod(spec={"containers": {"main": {}}}), 'spec.containers: Invalid value: {"main": {}}: must be a list'),
        (pod(spec={"containers": [{"name": "main"}, None]}),
         "spec.containers[1]: Invalid value: null: must be an object"),
        (pod(metadata={"name": "p", "finalizers": [None]}),
         "metadata.finalizers[0]: Invalid value: null: must be a string"),
        (pod(status={"containerStatuses": [{"restartCount": True}]}),
         "status.containerStatuses[0].restartCount: Invalid value: true: must be an integer"),
        (pod(spec=nested(101)), 'spec[0][0][0][0][0][0][0]: Invalid value: "list": must be nested at most 100 levels '
                                'deep'),
    ],
)  # fmt: skip
def test_the_first_field_of_another_shape_is_named(document: object, said: str) -> None:
    with pytest.raises(shapes.WrongDocument) as wrong:
        shapes.check(document, shapes.POD)
    assert str(wrong.value) == said


def test_what_is_not_known_or_left_out_has_any_shape() -> None:
    shapes.check(pod(spec={"hostname": 7, "nodeName": None, "containers": [{"image": []}]}), shapes.POD)
    assert shapes.metadata_of({"metadata": {"name": "p", "labels": 7, "finalizers": [1]}}) == {"name": "p"}
    assert shapes.malformed(job()) == []


def test_json_that_the_parser_gives_up_at_is_read_without_what_is_too_deep() -> None:
    usual = {"a": [1, {"b": "]}["}]}
    deep = '{"deep": ' + "[" * 100_000 + '"x"' + "]" * 100_000 + ', "wide": ' + json.dumps([usual] * 2) + "}"
    assert nesting.read(json.dumps(usual).encode()) == usual
    found = nesting.read(deep.encode())
    assert found["wide"] == [usual] * 2
    for _ in range(nesting.CUT_BELOW - 1):
        (found["deep"],) = found["deep"]
    assert found["deep"] == "nested too deeply"
    with pytest.raises(ValueError, match="Expecting property name"):
        nesting.read(b"{")


def test_the_spec_that_a_status_keeps_is_followed_with_its_annotations() -> None:
    before, now = job(spares=1), job(spares="many")
    before["metadata"]["annotations"], now["metadata"]["annotations"] = {"a": "before"}, {"a": "now"}
    kept = accepted_spec.kept({"phase": "Running", "saved": {"term": 2}}, before)
    assert (kept["phase"], kept["saved"]["term"]) == ("Running", 2)
    found = accepted_spec.kept_by({**now, "status": kept})
    assert found is not None
    assert found["spec"] == before["spec"]
    assert (found["metadata"]["annotations"], found["metadata"]["uid"]) == ({"a": "before"}, "job-uid")


@pytest.mark.parametrize("spec", [None, "", "{", "[]", '{"spec": 7}', 7])
def test_a_status_that_keeps_no_spec_is_followed_nowhere(spec: object) -> None:
    assert accepted_spec.kept_by({**job(), "status": {"saved": {"spec": spec}}}) is None


def test_what_is_no_object_is_not_too_large() -> None:
    assert bounds.too_large(["x" * bounds.MOST_BYTES] * 2) == ""
