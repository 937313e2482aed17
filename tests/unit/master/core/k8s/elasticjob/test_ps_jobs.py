"""An ElasticJob with parameter servers: what its core is told, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.k8s.elasticjob import ps as elasticjob_ps
from outrider.master.core.k8s.elasticjob.status import status_of
from outrider.master.core.k8s.elasticjob.validation import problems
from outrider.master.core.k8s.pods import build as pods_build
from outrider.master.core.k8s.pods import observe
from outrider.master.core.k8s.values.names import PS_RESOURCES, Document
from outrider.master.core.ps.tf_config import task_spec
from outrider.master.core.spec import RoleLimits
from outrider.wire.ids import NO_GENERATION, MemberId, RankIndex, Role
from tests.unit.master.core.k8s.documents import job, template, worker

LIMITED = {"containers": [{"name": "main", "image": "train:1", "resources": {"limits": {"memory": "1Gi"}}}]}


def ps_job(workers: Document | None = None, ps: int = 2, others: tuple[str, ...] = ("chief",), **spec: Any) -> Document:
    roles = {"ps": worker(replicas=ps), "worker": workers or worker(replicas=2, maxReplicas=3)}
    return job(roles | {role: worker(replicas=1) for role in others}, **spec)


def test_addresses_follow_from_the_document_alone() -> None:
    spec = elasticjob_ps.spec_of(ps_job(others=("chief", "evaluator")))
    assert spec.ps == ("mnist-ps-0:2222", "mnist-ps-1:2222")
    assert spec.workers == ("mnist-worker-0:3333", "mnist-worker-1:3333", "mnist-worker-2:3333")
    assert (spec.chief, spec.has_evaluator, spec.replicas) == ("mnist-chief-0:3333", True, 2)
    assert elasticjob_ps.spec_of(ps_job(others=())).chief == ""


def test_a_job_without_ps_is_an_all_reduce_job() -> None:
    assert not elasticjob_ps.spec_of(job()).is_ps


def test_each_role_has_limits_of_its_own() -> None:
    document = ps_job()
    document["spec"]["replicaSpecs"]["ps"] |= {"restartLimit": 1, "maxMemory": "4Gi"}
    document["spec"]["replicaSpecs"]["chief"]["template"] = {"spec": LIMITED}
    spec = elasticjob_ps.spec_of(document)
    assert spec.limits[:2] == (RoleLimits(Role("ps"), 1, 4 << 30), RoleLimits(Role("chief"), 5, 32 << 30))
    task = task_spec(spec, (Role("ps"), RankIndex(1)))
    assert (task.relaunch_limit, task.max_memory, task.role) == (1, 4 << 30, "ps")


def test_the_path_of_a_users_tf_config_is_reported() -> None:
    own = worker(replicas=1)
    own["template"] = template(
        containers=[{"name": "main", "image": "i", "env": [{"name": "TF_CONFIG", "value": "{}"}]}]
    )
    assert (
        elasticjob_ps.spec_of(ps_job(own)).tf_config_from == "spec.replicaSpecs.worker.template.spec.containers[0].env"
    )


def test_a_job_that_is_well_has_no_problems() -> None:
    assert problems(ps_job(others=("chief", "evaluator"), nodeUnit=1, nprocPerNode=1, nodeCheck={"enabled": False},
                           elasticData=False, spares=0, scaling={"policy": "none"})) == []  # fmt: skip


def with_role(role: str, **more: Any) -> Document:
    document = ps_job()
    document["spec"]["replicaSpecs"][role] = worker(**more)
    return document


def with_note(note: str) -> Document:
    document = ps_job()
    document["metadata"]["annotations"] = {f"outrider.dev/{note}": "true"}
    return document


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (job({"worker": worker(), "chief": worker()}),
         "spec.replicaSpecs.ps: Required value: only jobs with parameter servers have the role chief"),
        (job({"worker": worker(), "evaluator": worker()}),
         "spec.replicaSpecs.ps: Required value: only jobs with parameter servers have the role evaluator"),
        (with_role("chief", replicas=2),
         "spec.replicaSpecs.chief.replicas: Invalid value: 2: must be 1; one chief restores and saves for all"),
        (with_role("evaluator", replicas=3),
         "spec.replicaSpecs.evaluator.replicas: Invalid value: 3: must be 1; one evaluator evaluates the checkpoints"),
        (with_role("ps", minReplicas=1, maxReplicas=2),
         "spec.replicaSpecs.ps.replicas: Invalid value: 2: must be equal to minReplicas (1) and maxReplicas (2),"),
        (with_role("master"),
         "spec.replicaSpecs.master: Forbidden: a job with parameter servers has a chief instead of a master"),
        (ps_job(nodeCheck={"enabled": True}),
         "spec.nodeCheck.enabled: Forbidden: not supported in a job with parameter servers: it compares members of"),
        (ps_job(elasticData=True),
         "spec.elasticData: Forbidden: not supported in a job with parameter servers: it works with torch only"),
        (ps_job(saveSignal="SIGUSR1"),
         "spec.saveSignal: Forbidden: not supported in a job with parameter servers: only the chief saves, every few "),
        (ps_job(nprocPerNode=2),
         "spec.nprocPerNode: Invalid value: 2: must be 1 in a job with parameter servers: each member is one process"),
        (ps_job(worker(replicas=2), nodeUnit=2),
         "spec.nodeUnit: Invalid value: 2: must be 1 in a job with parameter servers: its members form no all-reduce "),
        (ps_job(spares=1),
         "spec.spares: Invalid value: 1: must be 0 in a job with parameter servers, which has no spares"),
        (ps_job(worker(replicas=2, minReplicas=1, maxReplicas=3), scaling={"policy": "throughput"}),
         'spec.scaling.policy: Invalid value: "throughput": not supported in a job with parameter servers, whose size'),
        (with_note("elastic-data"),
         "metadata.annotations[outrider.dev/elastic-data]: Forbidden: not supported in a job with parameter servers: "),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_path_of_the_field(wrong: Document, said: str) -> None:
    found = problems(wrong)
    assert len(found) == 1, found
    assert found[0].startswith(said)


def test_who_there_is_does_not_change_while_the_job_runs() -> None:
    old = ps_job()
    assert problems(ps_job(worker(replicas=3)), old) == []
    (said,) = problems(ps_job(ps=3), old)
    assert (
        said
        == "spec.replicaSpecs.ps.replicas: Forbidden: field is immutable; the variables are spread over 2 parameter "
        "servers"
    )
    (said,) = problems(ps_job(others=()), old)
    assert said.startswith("spec.replicaSpecs.chief: Forbidden: a role cannot be added or removed, because members")
    (said,) = problems(ps_job(worker(replicas=4)), old)
    assert said.startswith("spec.replicaSpecs.worker.maxReplicas: Invalid value: 4: must be at most 3 while the job")
    old["spec"]["suspend"] = True
    assert problems(ps_job(worker(replicas=4)), old) == []


def test_its_conditions_count_members_of_all_roles() -> None:
    document = {"phase": "running", "generation": "-", "world": 5, "members": [], "faults": []}
    status = status_of(ps_job(), document, [], "2026-01-01T00:02:00Z")
    found = {each["type"]: (each["reason"], each["message"]) for each in status["conditions"]}
    assert found["Scheduled"] == ("TooFewMembers", "0 of 0 members have a node; 5 are needed")
    assert found["Running"] == ("GenerationRunning", "5 members")
    assert sorted(status["replicaStatuses"]) == ["chief", "ps", "worker"]


# -- what the container of a parameter server is to have --------------------------------------------------------------
def sized(note: str = "", **resources: Any) -> Document:
    document = ps_job()
    container = {"name": "main", "image": "train:1", "resources": resources}
    document["spec"]["replicaSpecs"]["ps"]["template"] = template(containers=[container])
    document["metadata"]["annotations"] = {PS_RESOURCES: note} if note else {}
    return document


def created(document: Document, member: str, place: int, rank_index: int | None = None) -> Document:
    words = elasticjob_ps.spec_of(document).ps_resources[place]
    index = None if rank_index is None else RankIndex(rank_index)
    asked = CreatePod(MemberId(member), Role("ps"), index, NO_GENERATION, "", place=RankIndex(place), resources=words)
    return pods_build.pod_of(document, asked)


def test_one_parameter_server_may_have_more_than_its_template_says() -> None:
    document = sized("memory=8Gi@rank-index=1, cpu=2@rank-index=1", requests={"cpu": "500m"}, limits={"memory": "4Gi"})
    assert elasticjob_ps.spec_of(document).ps_resources == (
        "cpu 500m and at most memory 4Gi", "cpu 2, memory 8Gi and at most memory 8Gi"
    )  # fmt: skip
    spec = task_spec(elasticjob_ps.spec_of(document), (Role("ps"), RankIndex(1)))
    assert spec.resources == "cpu 2, memory 8Gi and at most memory 8Gi"
    pod = created(document, "ps-2", 1)
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}
    }  # fmt: skip
    seen = observe.seen(pod)
    assert seen is not None
    assert seen.resources == spec.resources
    other = created(document, "ps-0", 0, 0)["spec"]["containers"][0]["resources"]
    assert other == {"requests": {"cpu": "500m"}, "limits": {"memory": "4Gi"}}


def test_who_asks_for_nothing_says_so_and_no_other_role_is_watched() -> None:
    spec = elasticjob_ps.spec_of(sized())
    assert spec.ps_resources == ("no resources of its own",) * 2
    assert task_spec(spec, (Role("worker"), RankIndex(0))).resources == ""


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("memory=8Gi", 'Invalid value: "memory=8Gi": must be memory=AMOUNT@rank-index=N or cpu=AMOUNT@rank-index=N;'),
        (
            "disk=8Gi@rank-index=0",
            'Invalid value: "disk=8Gi@rank-index=0": must be memory=AMOUNT@rank-index=N or cpu=AMOUNT@rank-index=N;',
        ),
        (
            "cpu=2@rank-index=2",
            'Invalid value: "cpu=2@rank-index=2": rank-index must be less than 2, the number of parameter servers',
        ),
        (
            "memory=much@rank-index=0",
            'Invalid value: "memory=much@rank-index=0": the amount must be greater than 0, such as 2, 500m or 16Gi',
        ),
        (
            "cpu=0@rank-index=0",
            'Invalid value: "cpu=0@rank-index=0": the amount must be greater than 0, such as 2, 500m or 16Gi',
        ),
    ],
)
def test_invalid_resources_are_refused(note: str, said: str) -> None:
    (found,) = problems(sized(note))
    assert found.startswith(f"metadata.annotations[outrider.dev/ps-resources]: {said}")


def test_valid_resources_are_accepted() -> None:
    assert problems(sized("memory=8Gi@rank-index=0, cpu=500m@rank-index=1")) == []


def test_a_job_without_parameter_servers_has_none_to_resize() -> None:
    document = job()
    document["metadata"]["annotations"] = {PS_RESOURCES: "cpu=2@rank-index=0"}
    assert problems(document) == [
        "metadata.annotations[outrider.dev/ps-resources]: Forbidden: the job has no parameter servers"
    ]
