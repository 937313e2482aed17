"""How large a document may be, and that finding out costs little of one that is far larger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from outrider.master.core.k8s.elasticjob import validation
from outrider.master.core.k8s.injection import trainer as injection_trainer
from outrider.master.core.k8s.injection import webhook as injection_webhook
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods import observe
from outrider.master.core.k8s.values import bounds
from outrider.master.core.k8s.values.bounds import MOST_BYTES, MOST_VALUES
from tests.unit.master.core.k8s.documents import job


class Watched(list[Any]):
    looked = False

    def __iter__(self) -> Iterator[Any]:
        self.looked = True
        return super().__iter__()


def with_template(**fields: Any) -> dict[str, Any]:
    document = job()
    document["spec"]["replicaSpecs"]["worker"]["template"]["spec"] |= fields
    return document


def test_a_usual_job_is_read() -> None:
    assert bounds.too_large(job()) == ""
    assert validation.problems(job()) == []


@pytest.mark.parametrize(
    ("value", "path", "most"),
    [
        ([[]] * (MOST_VALUES + 1), "x", f"{MOST_VALUES} values"),
        ([[[]] * 200] * 200, "x[", f"{MOST_VALUES} values"),
        ({str(n): 1 for n in range(MOST_VALUES + 1)}, "x", f"{MOST_VALUES} values"),
        (["y" * 1000] * (MOST_BYTES // 1000 + 1), "x[", "256 KiB"),
        ("y" * (MOST_BYTES + 1), "x", "256 KiB"),
        ({"y" * (MOST_BYTES + 1): None}, "x.", "256 KiB"),
    ],
)
def test_one_that_is_too_large_is_refused_with_the_field_and_nothing_else_of_it_is_read(
    value: object, path: str, most: str
) -> None:
    (said,) = validation.problems(with_template(x=value))
    assert said.startswith(f"spec.replicaSpecs.worker.template.spec.{path}")
    assert f"with this field the document exceeds {most} and is not read" in said


def test_a_list_that_is_too_long_is_not_gone_through() -> None:
    watched = Watched([[]] * 500_000)
    assert bounds.too_large(with_template(x=watched))
    assert not watched.looked


def test_what_others_write_into_it_is_not_counted() -> None:
    document = job() | {"status": {"members": [{}] * 50_000}}
    document["metadata"] = document["metadata"] | {"managedFields": [{"fieldsV1": {}}] * 50_000}
    assert bounds.too_large(document) == ""
    kept = bounds.kept(document)
    assert "managedFields" not in kept["metadata"]
    assert kept["status"] == document["status"]


def test_of_one_that_is_too_large_a_watch_keeps_who_it_is_and_why_it_is_not_read() -> None:
    document = with_template(x=[[]] * 50_000)
    document["metadata"] |= {"uid": "u", "annotations": {"outrider.dev/supervise": "off", "of-others": "y"}}
    document["spec"]["adopts"] = {"kind": "Job", "name": "a", "apiVersion": "batch/v1"}
    said = bounds.too_large(document)
    kept = bounds.kept(document)
    assert kept["metadata"]["name"] == document["metadata"]["name"]
    assert kept["metadata"]["annotations"] == {"outrider.dev/supervise": "off"}
    assert kept["spec"] == {"adopts": document["spec"]["adopts"]}
    assert validation.problems(kept) == [said]
    assert observe.kept({"metadata": {"name": "p"}, "spec": {"x": [[]] * 50_000}}) is None


def test_commands_of_the_largest_size_are_searched_in_one_go() -> None:
    """An expression over all of them began anew at each word: minutes for these."""
    for text in ("kill " * 50_000, "python " * 36_000, "\n" * 250_000, "accelerate " * 23_000, "py " * 80_000):
        trainer = {"name": "t", "image": "i", "command": ["sh", "-c", text]}
        assert not injection_webhook._names_pid_1(text)
        assert injection_trainer.mode_of(trainer, Place("j", "n", "worker")).startswith("relaunch")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("kill -TERM 1", True), ("kill 12; echo 1", False), ("killall 1", False), ('["kill", "-9", "1"]', True),
        ("kill 1234 & kill -9 1", True), ("cat /proc/1/environ", True), ("kill 10", False), ("echo 1 | kill", False),
    ],
)  # fmt: skip
def test_a_command_that_names_pid_1_is_found_as_by_one_expression(text: str, names: bool) -> None:
    assert injection_webhook._names_pid_1(text) is names
    assert bool(re.search(r"\bkill\b[^;&|]*[ \"]1\b|/proc/1/", text)) is names


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("python train.py", True), ("python -m pkg", True), ("cd /x && python3 -u /x/train.py --a", True),
        ("python -c 'pass'; cat a.py", False), ("pypy x.py", True), ("'python' x.py", True), ("echo x.py", False),
        ("accelerate launch x", True), ("python -u x | tee a.py", False), ("mypython x.py", False),
    ],
)  # fmt: skip
def test_a_command_that_runs_python_is_found_as_by_one_expression(text: str, runs: bool) -> None:
    assert injection_trainer._runs_python(text) is runs
    one = r"\baccelerate\s+launch\b|\bpy(thon|py)[\d.]*[\"']?\s[^;&|\n]*?(\.py\b|-m\s)"
    assert bool(re.search(one, text)) is runs
