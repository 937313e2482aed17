"""Whatever has pods in it is injected as the webhook will do with each of those pods."""

from __future__ import annotations

import re
from typing import Any

import pytest

from outrider.master.core.k8s.injection.offline import inject_all
from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.documents import job
from tests.unit.master.core.k8s.injection.injecting import POLICY, main, pod_of

CONTAINER = main(command=["python", "train.py"])
TEMPLATE: Document = {"spec": {"containers": [CONTAINER]}}


def of(kind: str, name: str | None = "gpt", template: Document = TEMPLATE, **spec: Any) -> Document:
    return {"kind": kind, "metadata": {"name": name} if name else {"generateName": "gpt-"},
            "spec": {"template": template, **spec}}  # fmt: skip


def variables(template: Document) -> dict[str, Any]:
    container = template["spec"]["containers"][0]
    return {each["name"]: each.get("value") for each in container["env"]}


def test_each_pod_of_a_list_is_injected_and_the_list_that_was_given_stays() -> None:
    listed = {"kind": "List", "items": [{"kind": "Pod", **pod_of()}, of("Job", completionMode="Indexed")]}
    new, found = inject_all(listed, "research", POLICY)
    assert [each.where for each in found] == ["Pod gpt-0", "Job gpt"]
    assert all(each.injection.changed and not each.asks for each in found)
    assert [each.counted_by for each in found] == ["", "its completion index"]
    assert "env" not in listed["items"][0]["spec"]["containers"][0]
    assert variables(new["items"][0])["OUTRIDER_JOB"] == "research/gpt-0"
    assert variables(new["items"][1]["spec"]["template"])["OUTRIDER_JOB"] == "research/gpt"


def test_without_another_namespace_it_is_the_documents_own() -> None:
    pod = {"kind": "Pod", **pod_of()}
    assert variables(inject_all(pod, "", POLICY)[0])["OUTRIDER_JOB"] == "default/gpt-0"
    pod["metadata"]["namespace"] = "own"
    assert variables(inject_all(pod, "", POLICY)[0])["OUTRIDER_JOB"] == "own/gpt-0"


def test_pods_of_an_elasticjob_ask_by_themselves_and_have_its_job() -> None:
    new, (found,) = inject_all(job(), "", POLICY)
    assert (found.where, found.asks) == ("ElasticJob mnist, worker", True)
    assert variables(new["spec"]["replicaSpecs"]["worker"]["template"])["OUTRIDER_JOB"] == "research/mnist"


def test_a_template_that_says_no_is_passed_through() -> None:
    no = {**TEMPLATE, "metadata": {"labels": {"outrider.dev/inject": "false"}}}
    new, (found,) = inject_all(of("Job", template=no), "", POLICY)
    assert not found.injection.changed
    assert found.injection.refused == 'its label outrider.dev/inject is "false"'
    assert new["spec"]["template"] == no


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"kind": "CronJob", "metadata": {"name": "n"}, "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}},
         "each Job that it creates is a separate job"),
        ({"kind": "PodTemplate", "metadata": {"name": "t"}, "template": TEMPLATE}, "the controller that uses it"),
    ],
)  # fmt: skip
def test_where_the_name_of_the_job_comes_later_only_the_webhook_can_inject(document: Document, why: str) -> None:
    new, (found,) = inject_all(document, "", POLICY)
    assert why in found.injection.refused
    assert new == document


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (of("Job", name=None), "Job: metadata.name: Required value: the name that generateName will give"),
        (of("Job", template={**TEMPLATE, "metadata": {"labels": ["a"]}}), "Job gpt: its pod template's metadata.label"),
        (of("Job", template={**TEMPLATE, "metadata": {"annotations": {"outrider.dev/inject": True}}}),
         "Job gpt: its pod template's metadata.annotations[outrider.dev/inject]: Invalid value: true: must be a"),
        (of("Job", template={**TEMPLATE, "metadata": {"annotations": {"outrider.dev/max-restarts": "many"}}}),
         "Job gpt: metadata.annotations[outrider.dev/max-restarts]: Invalid value"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_said_with_its_place(document: Document, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        inject_all(document, "", POLICY)


def test_what_has_no_pods_is_left() -> None:
    service = {"kind": "Service", "metadata": {"name": "etcd"}, "spec": {"ports": []}}
    assert inject_all(service, "", POLICY) == (service, [])
