"""What the webhook makes of a pod whose place only its owners' documents tell, with the API server well and unwell."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.cli.kube import yaml as kube_yaml
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.webhook.admission import injected
from tests.integration.kubernetes.unwell_server import Answer, hang, refuses, says, unwell
from tests.waiting import DEADLINE

FOLDER = Path(__file__).parents[3] / "unit/master/core/k8s/data"
POLICY = Policy("outrider/sidecar:1", "IfNotPresent", "tcp://outrider-master:7070", "k" * 40)
LABEL = "outrider.dev/rank-index"


def recorded(path: str) -> list[Document]:
    with (FOLDER / f"{path}.yaml").open() as file:
        return kube_yaml.read(file)


(POD,), (JOB, JOBSET) = recorded("pods/jobset_of_two"), recorded("owners/jobset_of_two")
OF_JOB = "/apis/batch/v1/namespaces/research/jobs/llm-workers-1"
OF_ELASTICJOBS = "/apis/outrider.dev/v1alpha1/namespaces/research/elasticjobs/"
OF_JOBSET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets/llm"


async def labels_of(pod: Document, *answers: Answer, patience: float = 30.0) -> tuple[Document, list[tuple[str, str]]]:
    """The labels of the injected pod, and what was asked for."""
    async with unwell(*answers) as (server, api):
        new, warnings = await injected(api, pod, "research", POLICY, patience)
    assert list(warnings) == []
    assert new is not None
    return new["metadata"]["labels"], server.asked


async def test_a_pod_of_a_jobset_gets_its_rank_index_by_its_job_and_its_set() -> None:
    labels, asked = await labels_of(POD, says(JOB), says(JOBSET))
    assert (labels["outrider.dev/job"], labels[LABEL]) == ("llm", "5")
    assert asked[:2] == [("GET", OF_JOB), ("GET", OF_JOBSET)]


@pytest.mark.parametrize(
    "answers",
    [
        [refuses(404, "NotFound")],
        [refuses(403, "Forbidden")],
        [says(JOB), refuses(403, "Forbidden")],
        [says({**JOB, "metadata": {**JOB["metadata"], "uid": "of-another-attempt"}}), says(JOBSET)],
    ],
    ids=["gone", "not ours to read", "only the Job", "made anew"],
)
async def test_a_pod_whose_owners_are_not_to_be_had_is_injected_without_a_rank_index(answers: list[Answer]) -> None:
    labels, _ = await labels_of(POD, *answers)
    assert labels["outrider.dev/job"] == "llm"
    assert LABEL not in labels


async def test_a_pod_does_not_wait_for_an_api_server_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    labels, _ = await labels_of(POD, hang(), patience=0.1)
    assert LABEL not in labels
    assert "reading the owners of a pod in research failed: no answer in time" in caplog.text


@pytest.mark.parametrize("name", ["plain", "job", "indexed_job"])
async def test_only_its_jobs_past_is_asked_about_a_pod_that_says_it_all(name: str) -> None:
    (pod,) = recorded(f"pods/{name}")
    _, asked = await labels_of(pod, refuses(403))
    assert [path.startswith(OF_ELASTICJOBS) for _, path in asked] == [True]


async def test_a_pod_of_a_deployment_is_not_changed_if_no_annotation_has_the_size() -> None:
    (pod,) = recorded("pods/deployment")
    counted = {**pod, "metadata": {**pod["metadata"], "annotations": {"outrider.dev/max": "2"}}}
    async with unwell() as (_, api):
        new, (warning,) = await injected(api, pod, "research", POLICY)
        assert new is None
        assert warning.startswith(
            "outrider: metadata.annotations[outrider.dev/max]: Required value: the number of pods of a ReplicaSet"
        )
        assert (await injected(api, counted, "research", POLICY))[0] is not None


@pytest.mark.parametrize("name", ["../../../../api/v1/namespaces/kube-system/secrets/s", "..", "", "a b", "a%2fb"])
async def test_an_owner_is_asked_for_by_its_name_alone(name: str) -> None:
    reference = {**POD["metadata"]["ownerReferences"][0], "name": name}
    _, asked = await labels_of({**POD, "metadata": {**POD["metadata"], "ownerReferences": [reference]}})
    assert [path for _, path in asked if not path.startswith(OF_ELASTICJOBS)] == []


async def test_a_pod_that_asks_for_nothing_is_not_looked_at() -> None:
    no = {**POD["metadata"], "labels": {**POD["metadata"]["labels"], "outrider.dev/inject": "false"}}
    async with unwell() as (server, api):
        assert await injected(api, {**POD, "metadata": no}, "research", POLICY) == (None, [])
    assert server.asked == []


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"hostPID": True}, "spec.hostPID: Invalid value: true"),
        ({"os": {"name": "windows"}}, "spec.os.name: Forbidden: it makes this a Windows pod"),
        (
            {"initContainers": [{"name": "outrider-hooks", "image": "mine"}]},
            "spec.initContainers[0].name: Forbidden: outrider-hooks is the name",
        ),
        ({"containers": None}, "spec.containers: Required value"),
    ],
)
async def test_a_pod_that_cannot_be_supervised_is_let_through_with_the_reason(spec: Document, why: str) -> None:
    (plain,) = recorded("pods/plain")
    async with unwell() as (_, api):
        new, warnings = await injected(api, {**plain, "spec": {**plain["spec"], **spec}}, "research", POLICY)
    assert new is None
    (warning,) = warnings
    assert warning.startswith(f"outrider: {why}")


async def test_a_pod_without_an_owner_is_its_own_job_and_one_without_a_name_is_admitted() -> None:
    (plain,) = recorded("pods/plain")
    labels, _ = await labels_of({**plain, "metadata": {"generateName": "try-", "labels": plain["metadata"]["labels"]}})
    assert labels["outrider.dev/job"] == "try"
    async with unwell() as (_, api):
        new, warnings = await injected(
            api, {**plain, "metadata": {**plain["metadata"], "name": "x" * 64}}, "research", POLICY
        )
    assert new is None
    assert "to be a job's name" in warnings[0]


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_while_nothing_is_supervised_a_pod_is_made_as_without_us_and_says_why(mode: str) -> None:
    async with unwell(says(JOB), says(JOBSET), refuses(404)) as (server, api):
        new, (warning,) = await injected(api, POD, "research", POLICY, 30.0, mode)
    assert new is None
    assert f"is not changed: the master's OUTRIDER_MODE is {mode}" in warning
    assert ("would be supervised" in warning) == (mode == "observe")
    assert server.asked[-1][1].startswith("/apis/outrider.dev/v1alpha1/namespaces/research/elasticjobs/")


@pytest.mark.parametrize("answer", [says({}), refuses(403), refuses(500)])
async def test_but_a_pod_of_a_job_that_has_begun_here_or_may_have_waits_for_the_others(answer: Answer) -> None:
    async with unwell(says(JOB), says(JOBSET), answer) as (_server, api):
        new, warnings = await injected(api, POD, "research", POLICY, 30.0, "off")
    assert new is not None
    assert warnings == []


OF_ONE, OF_TWO = ({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {
    "parallelism": count, "completions": count}} for count in (1, 2))  # fmt: skip
OWNED = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1", "controller": True}
MEETING = {"name": "MASTER_ADDR", "value": "train-0.train"}


def pod_of_a_job(command: list[str], env: list[Document]) -> Document:
    labels = {"outrider.dev/inject": "true", "job-name": "train"}
    return {
        "metadata": {"name": "train-x", "namespace": "research", "labels": labels, "ownerReferences": [OWNED]},
        "spec": {"containers": [{"name": "main", "image": "train:1", "command": command, "env": env}]},
    }


HANGS = hang()


@pytest.mark.parametrize(
    ("answers", "command", "env", "may"),
    [
        ([refuses(404), says(OF_ONE)], ["python", "t.py"], [], True),
        ([refuses(404), says(OF_TWO)], ["python", "t.py"], [], False),
        ([refuses(404), says(OF_TWO)], ["python", "t.py"], [MEETING], True),
        ([refuses(404), says(OF_TWO)], ["sh", "-c", "torchrun --rdzv-endpoint=$HOST:29400 t.py"], [], True),
        ([refuses(404), says(OF_TWO)], ["torchrun", "--rdzv_endpoint", "localhost:0", "t.py"], [], False),
        ([refuses(404), says(OF_TWO)], ["torchrun", "--standalone", "t.py"], [], False),
        ([says({"status": {"generation": "0.0"}}), says(OF_ONE)], ["python", "t.py"], [], True),
        ([says({"status": {"generation": "3.1"}}), says(OF_ONE)], ["python", "t.py"], [], False),
        ([refuses(403)], ["python", "t.py"], [], False),
        ([refuses(404), refuses(500)], ["python", "t.py"], [], False),
        ([refuses(404), HANGS], ["python", "t.py"], [MEETING], False),
    ],
    ids=["alone", "of two", "told where to meet", "says where to meet", "meets at home", "standalone", "no generation",
         "a generation", "not to be read", "owner unknown", "no answer"],
)  # fmt: skip
async def test_a_pod_may_begin_by_itself_only_where_it_forms_its_world_and_no_generation_was_formed(
    answers: list[Answer], command: list[str], env: list[Document], may: bool
) -> None:
    seconds = 0.3 if answers[-1] is HANGS else DEADLINE
    async with unwell(*answers) as (_, api):
        new, _warnings = await injected(api, pod_of_a_job(command, env), "research", POLICY, seconds)
    assert new is not None
    note = new["metadata"]["annotations"].get("outrider.dev/alone-after")
    trainer, sidecar = ({e["name"]: e.get("value") for e in c["env"]} for c in new["spec"]["containers"])
    said = (note, trainer["OUTRIDER_PATIENCE"], sidecar.get("OUTRIDER_ALONE_AFTER"))
    assert said == (("600", "600", "600") if may else (None, "inf", None))
