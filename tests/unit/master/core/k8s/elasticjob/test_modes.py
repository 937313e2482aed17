"""Modes of a job: each source, and that the most cautious one wins."""

from __future__ import annotations

import pytest

from outrider.master.core.k8s.elasticjob import validation
from outrider.master.core.k8s.values import modes
from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.documents import job

OFF, OBSERVE = {"outrider.dev/supervise": "off"}, {"outrider.dev/mode": "observe"}


def annotated(notes: Document, **spec: object) -> Document:
    found = job(**spec)  # type: ignore[arg-type]
    found["metadata"]["annotations"] = notes
    return found


def pod(notes: Document) -> Document:
    return {"metadata": {"name": "llm-0", "namespace": "research", "annotations": notes}}


@pytest.mark.parametrize(
    ("setting", "notes", "namespace", "word", "why"),
    [
        ("supervise", {}, {}, "supervise", ""),
        ("supervise", OFF, {}, "off", 'the annotation outrider.dev/supervise of its ElasticJob is "off"'),
        ("supervise", OBSERVE, {}, "observe", 'the annotation outrider.dev/mode of its ElasticJob is "observe"'),
        ("supervise", {"outrider.dev/mode": " Off "}, {}, "off", "its ElasticJob"),
        ("supervise", {}, OBSERVE, "observe", "of its namespace research is"),
        ("supervise", {"outrider.dev/supervise": "on"}, OFF, "off", "its namespace"),
        ("observe", {}, {}, "observe", "the master's OUTRIDER_MODE is observe"),
        ("observe", OFF, {}, "off", "its ElasticJob"),
        ("off", {"outrider.dev/supervise": "on"}, {}, "off", "OUTRIDER_MODE is off"),
        ("supervise", {"outrider.dev/supervise": "of"}, {}, "supervise", ""),
        ("supervise", {"outrider.dev/supervise": ["off"]}, {"outrider.dev/mode": None}, "supervise", ""),
    ],
)
def test_the_most_cautious_word_wins(setting: str, notes: Document, namespace: Document, word: str, why: str) -> None:
    found = modes.mode_of(setting, annotated(notes), (), namespace)
    assert found.word == word
    assert why in found.why
    assert bool(found.why) == bool(why)


def test_pods_of_another_owner_speak_for_their_job_and_pods_of_ours_do_not() -> None:
    pods = [pod({}), pod(OFF)]
    assert modes.mode_of("supervise", annotated({}), pods).word == "supervise"
    adopting = annotated({}, adopts={"apiVersion": "batch/v1", "kind": "Job", "name": "llm"})
    assert modes.mode_of("supervise", adopting, pods) == (
        "off",
        'the annotation outrider.dev/supervise of its pod llm-0 is "off"',
    )


def test_a_word_that_cannot_be_meant_is_refused_with_its_path() -> None:
    wrong = annotated({"outrider.dev/supervise": "of", "outrider.dev/mode": "watch"})
    said = [each for each in validation.problems(wrong) if "annotations" in each]
    assert said == [
        'metadata.annotations[outrider.dev/supervise]: Unsupported value: "of": supported values: "on", "off"',
        'metadata.annotations[outrider.dev/mode]: Unsupported value: "watch": supported values: "supervise", '
        '"observe", "off"',
    ]
    assert not [each for each in validation.problems(annotated(OFF | OBSERVE)) if "annotations" in each]
