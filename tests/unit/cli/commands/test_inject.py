"""`outrider inject` reads files and prints YAML or reasons, as kubectl would read and write them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from outrider.cli.kube import yaml as kube_yaml
from outrider.cli.main import main

ROOT = Path(__file__).parents[4]
PODS = ROOT / "tests/unit/master/core/k8s/data/pods"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "gpt-0"},
    "spec": {"containers": [{"name": "main", "image": "train:1", "command": ["python", "train.py"]}]},
}
TEMPLATE = {"metadata": {"labels": {"app": "gpt"}}, "spec": POD["spec"]}
COUNTED = {"metadata": {"labels": {"app": "gpt"}, "annotations": {"outrider.dev/max": "2"}}, "spec": POD["spec"]}
KEY = "k" * 40
BOMB = "".join(f"{name}: &{name} [{', '.join(['*' + before if before else 'x'] * 9)}]\n"
               for before, name in zip(("", *"abcdefgh"), "abcdefghi", strict=True)) + "kind: Pod"  # fmt: skip
COMMAND = (
    "(sleep 1 &) && torchrun --nnodes=3:$WORKER_NUM --nproc_per_node=2 --max_restarts=3 --rdzv_conf pend_timeout=600 "
    "train.py --epochs 5"
)


def outrider(*arguments: str, document: Any = None) -> Result:
    text = document if isinstance(document, str) else json.dumps(document)
    return CliRunner().invoke(main, ["inject", "--public-key", KEY, *arguments], input=text)


def read(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return kube_yaml.read(io.StringIO(result.stdout))


def variables_of(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def owner(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "gpt", "namespace": "research"}, "spec": spec}


# -- what comes out -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["plain", "stateful_set"])
def test_it_prints_the_pod_as_the_webhook_changes_it(name: str) -> None:
    result = outrider("-f", str(PODS / f"{name}.yaml"), "--image", "outrider/sidecar:1")
    with (PODS / f"{name}.injected.yaml").open() as file:
        assert read(result) == kube_yaml.read(file)
    assert result.stderr == ""


def test_the_namespace_and_the_kind_of_sidecar_can_be_given() -> None:
    result = outrider("-f", "-", "-n", "lab", "--native-sidecar", "--endpoint", "tcp://m:1", document=POD)
    spec = read(result)[0]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["outrider-hooks", "outrider-sidecar"]
    assert variables_of(spec["initContainers"][1])["OUTRIDER_JOB"] == "lab/gpt-0"
    assert variables_of(spec["initContainers"][1])["OUTRIDER_MASTER"] == "tcp://m:1"


@pytest.mark.parametrize(
    ("document", "path", "job", "role"),
    [
        (owner("Job", template=TEMPLATE), ["template"], "research/gpt", "worker"),
        (owner("StatefulSet", template=TEMPLATE), ["template"], "research/gpt", "worker"),
        (owner("Deployment", template=COUNTED), ["template"], "research/gpt", "worker"),
        (owner("DaemonSet", template=COUNTED), ["template"], "research/gpt", "worker"),
        (owner("Rollout", template=TEMPLATE), ["template"], "research/gpt", "worker"),
        (owner("PyTorchJob", pytorchReplicaSpecs={"Master": {"template": TEMPLATE}}),
         ["pytorchReplicaSpecs", "Master", "template"], "research/gpt", "master"),
        (owner("ElasticJob", replicaSpecs={"Worker": {"template": TEMPLATE}}),
         ["replicaSpecs", "Worker", "template"], "research/gpt", "worker"),
        (owner("JobSet", replicatedJobs=[{"name": "w", "template": {"spec": {"template": TEMPLATE}}}]),
         ["replicatedJobs", 0, "template", "spec", "template"], "research/gpt", "worker"),
    ],
    ids=["Job", "StatefulSet", "Deployment", "DaemonSet", "Rollout", "PyTorchJob", "ElasticJob", "JobSet"],
)  # fmt: skip
def test_the_pod_templates_of_a_job_are_injected(document: Any, path: list[Any], job: str, role: str) -> None:
    made = read(outrider("-f", "-", document=document))[0]
    found = made["spec"]
    for step in path:
        found = found[step]
    variables = variables_of(found["spec"]["containers"][1])
    assert (variables["OUTRIDER_JOB"], variables["OUTRIDER_ROLE"]) == (job, role)
    assert found["metadata"]["labels"]["app"] == "gpt"
    assert {**made, "spec": None} == {**document, "spec": None}


def test_a_member_of_an_elasticjob_has_the_id_that_the_master_gives_it() -> None:
    document = owner("ElasticJob", replicaSpecs={"worker": {"template": TEMPLATE}})
    spec = read(outrider("-f", "-", document=document))[0]["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    path = {"fieldRef": {"fieldPath": "metadata.labels['outrider.dev/member']"}}
    assert variables_of(spec["containers"][1])["OUTRIDER_MEMBER"] == path


def test_a_torchrun_inside_bash_is_seen_as_one_and_kept_as_it_stands() -> None:
    container = {"name": "main", "image": "train:1", "command": ["bash", "-c", COMMAND]}
    template = {"spec": {"containers": [container]}}
    document = owner("ElasticJob", replicaSpecs={"worker": {"replicas": 4, "minReplicas": 3, "template": template}})
    made = read(outrider("-f", "-", document=document))[0]["spec"]["replicaSpecs"]["worker"]["template"]
    assert made["spec"]["containers"][0]["command"] == ["/outrider/hooks/outrider-launch", "bash", "-c", COMMAND]
    explained = outrider("-f", "-", "--explain", document=document)
    assert (
        "  - the expected mode is fork: Outrider replaces torchrun inside bash -c, and its script becomes the "
        "template\n"
    ) in explained.stdout


def test_lines_that_end_as_on_windows_are_read_as_kubectl_reads_them() -> None:
    text = kube_yaml.written([POD])
    assert read(outrider("-f", "-", document=text.replace("\n", "\r\n"))) == read(outrider("-f", "-", document=text))
    assert read(outrider("-f", "-", document="\ufeff" + text)) == read(outrider("-f", "-", document=text))


def test_a_document_without_pods_is_printed_unchanged() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gpt"}, "spec": {"clusterIP": "None"}}
    text = "---\n" + json.dumps(service) + "\n---\n---\n" + json.dumps({"kind": "List", "items": [POD, service]})
    made = read(outrider("-f", "-", document=text))
    assert made[0] == service
    assert made[1]["items"][1] == service
    assert made[1]["items"][0]["metadata"]["annotations"]["outrider.dev/injected"] == "1"


def test_without_the_masters_key_a_line_says_where_to_find_it() -> None:
    result = CliRunner().invoke(main, ["inject", "-f", "-"], input=json.dumps(POD))
    assert read(result)
    assert result.stderr.startswith("outrider: before you apply this, give the --public-key of the master: kubectl ")
    quiet = CliRunner().invoke(main, ["inject", "-f", "-", "--explain"], input=json.dumps(POD))
    assert quiet.stderr == ""


# -- why ----------------------------------------------------------------------------------------------------------
def test_explain_says_why_and_prints_no_yaml() -> None:
    result = outrider("-f", "-", "--explain", document=owner("Job", template=TEMPLATE))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Job gpt",
        "  - the pod has the role worker in job research/gpt, with no rank index: it is a spare until the master "
        "assigns one",
        "  - the trainer is the container main: it is the only container",
        "  - the expected mode is fork: the container's command is the script train.py, which becomes the template",
        "  - added to the trainer: /outrider/hooks/outrider-launch before its command, variables OUTRIDER_*, a mount "
        "at /outrider",
        "  - added to the pod: init container outrider-hooks, container outrider-sidecar, volumes outrider and "
        "outrider-token, shareProcessNamespace",
        "  - the pod stays BestEffort: our containers have no requests and no limits",
        "  - without /bin/sh in the image train:1 the container cannot start",
        "  - without Python 3.8 or later in the image train:1 the command runs unsupervised",
        "  - if its sidecar cannot reach a master, the pod waits and logs the reason every minute",
        '  - the webhook changes the pod only with the label outrider.dev/inject: "true" on the pod, or enabled on its '
        "namespace",
    ]


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (owner("StatefulSet", template=TEMPLATE), "its ordinal"),
        (owner("Job", template=TEMPLATE, completionMode="Indexed"), "its completion index"),
        (owner("Job", template=TEMPLATE), ""),
        (owner("PyTorchJob", pytorchReplicaSpecs={"Worker": {"template": TEMPLATE}}), "its role and replica index"),
        (owner("JobSet", replicatedJobs=[{"name": "w", "template": {"spec": {"template": TEMPLATE}}}]),
         "its Job and completion index"),
    ],
)  # fmt: skip
def test_the_explanation_says_where_the_rank_index_will_come_from(document: Any, what: str) -> None:
    shown = outrider("-f", "-", "--explain", document=document).stdout
    assert (f"  - the webhook takes the rank index of each pod from {what};" in shown) is bool(what)


def test_a_pod_with_the_label_gets_no_hint_about_it() -> None:
    labelled = {**POD, "metadata": {"name": "gpt-0", "labels": {"outrider.dev/inject": "true"}}}
    for document in (labelled, owner("ElasticJob", replicaSpecs={"worker": {"template": TEMPLATE}})):
        assert "the webhook changes the pod only" not in outrider("-f", "-", "--explain", document=document).stdout


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"spec": {**POD["spec"], "hostPID": True}}, "spec.hostPID: Invalid value: true"),
        ({"metadata": {"name": "gpt-0", "labels": {"outrider.dev/inject": "false"}}},
         'its label outrider.dev/inject is "false"'),
        ({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}},
         "each Job that it creates is a separate job"),
        ({"kind": "Deployment", "spec": {"template": TEMPLATE}},
         "metadata.annotations[outrider.dev/max]: Required value"),
        ({"kind": "PodTemplate", "template": TEMPLATE, "spec": None},
         "the controller that uses it gives the job its name"),
    ],
)  # fmt: skip
def test_a_pod_that_is_passed_through_is_printed_unchanged(changes: dict[str, Any], reason: str) -> None:
    document = {**POD, **changes}
    result = outrider("-f", "-", document=document)
    assert result.exit_code == 1
    assert kube_yaml.read(io.StringIO(result.stdout)) == [document]
    assert result.stderr.startswith(f"outrider: {document['kind']} gpt-0 is not changed: {reason}")
    explained = outrider("-f", "-", "--explain", document=document)
    assert explained.exit_code == 1
    assert f"  - the pod is not injected: {reason}" in explained.stdout


# -- errors -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "--filename <stdin>: must be YAML or JSON: "),
        ("just words", "each document must be an object"),
        ("", "must have a pod or a pod template, found only nothing"),
        ({"kind": "Service"}, "must have a pod or a pod template, found only Service"),
        ({"kind": "CronJob", "spec": {}}, "must have a pod or a pod template, found only CronJob"),
        ({**POD, "metadata": {"name": "gpt-0", "annotations": {"outrider.dev/min": "two"}}},
         "Pod gpt-0: metadata.annotations[outrider.dev/min]: Invalid value: "),
        ({**POD, "metadata": {"name": "gpt-0", "labels": {"outrider.dev/inject": True}}},
         "Pod gpt-0: metadata.labels[outrider.dev/inject]: Invalid value: true: must be a string"),
        (owner("Job", template={"metadata": {"annotations": {"outrider.dev/min": 2}}, "spec": POD["spec"]}),
         "Job gpt: its pod template's metadata.annotations[outrider.dev/min]: Invalid value: 2: must be"),
        ("[" * 10_000, "must be YAML or JSON: nested too deeply"),
        ("{kind: Pod, metadata: &m {name: p, x: *m}}", "must be YAML or JSON: an anchor contains itself"),
        (BOMB, "must be YAML or JSON: more than 1000000 values after anchors are expanded"),
        ("a\0b", "must be YAML or JSON: unacceptable character #x0000"),
        ("kind: Pod\nspec:\n\tcontainers: []", "must be YAML or JSON: while scanning for the next token found"),
        ({**owner("Job", template=TEMPLATE), "metadata": {"generateName": "gpt-"}},
         "Job: metadata.name: Required value: the name that generateName will give"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)  # fmt: skip
def test_an_invalid_document_is_an_error_of_one_line(document: Any, said: str) -> None:
    result = outrider("-f", "-", document=document)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


# -- YAML ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    ["1e-3", "1E3", "12:30", "2026-01-01", "0x1f", "0o17", "017", "y", "N", "no", "On", "~", "null", "true", ".5",
     "1_0", "-1", "+.inf", "", "=", "<<", "a: b", "# c", "two\nlines\n", " a", "é", "100m", "16Mi", "{x}", "*a", "!t",
     "1.2.3"],
)  # fmt: skip
def test_a_string_stays_a_string_for_every_reader(text: str) -> None:
    written = kube_yaml.written([{"args": [text]}])
    assert kube_yaml.read(io.StringIO(written)) == [{"args": [text]}]
    if text in ("1e-3", "1E3", "12:30", "2026-01-01", "0o17", "y", "N", "no", "~"):
        assert f'"{text}"' in written


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("2E+2", 200.0), ("2026-01-01", "2026-01-01"), ("0644", 420), ("1.5", 1.5), ("'1e3'", "1e3"),
     ("100m", "100m"), ("true", True)],
)  # fmt: skip
def test_values_are_read_as_kubectl_reads_them(text: str, value: object) -> None:
    found = kube_yaml.read(io.StringIO(f"a: {text}"))[0]["a"]
    assert found == value
    assert type(found) is type(value)


def test_an_anchor_is_written_out() -> None:
    assert kube_yaml.written(kube_yaml.read(io.StringIO("a: &x {b: 1}\nc: *x"))) == "a:\n  b: 1\nc:\n  b: 1\n"
