"""TensorFlow jobs with parameter servers: chief, workers and ps, none of which stops for another one's end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from outrider.cli.report_files import of_cluster
from outrider.report.job import job_of
from tests.cluster import held_out
from tests.cluster.cluster import IMAGE as WITHOUT_TENSORFLOW
from tests.cluster.cluster import LONG, until
from tests.cluster.conftest import MakePods
from tests.cluster.parameter_servers import SAVE_EVERY, PsClusterJob
from tests.cluster.test_memory import memory_of, trainer_end
from tests.local.chapters import live_through

MakePs = Callable[..., PsClusterJob]


@pytest.fixture
def make_ps(pods: MakePods, namespace: str) -> MakePs:
    return lambda **asked: PsClusterJob(namespace, "click", pods("click").folder, **asked)


def trains(job: PsClusterJob, *members: str, after: float = 0.0) -> None:
    for member in members:
        job.steps_on(member, after)


def begun(make_ps: MakePs, workers: int = 2, ps: int = 2, **asked: object) -> PsClusterJob:
    """With a chief; they train and have saved."""
    job = make_ps(chief=1, worker=workers, ps=ps, **asked)
    trains(job, "chief-0", *(f"worker-{number}" for number in range(workers)))
    until(lambda: job.newest_checkpoint() >= SAVE_EVERY, job.story)
    return job


def failed(job: PsClusterJob, member: str) -> None:
    """All its containers have ended; its sidecar ends later than what it has looked after."""
    until(lambda: job.pods()[job.pod(member)]["status"]["phase"] == "Failed", job.story)


def at_place(job: PsClusterJob, member: str, place: str) -> None:
    """It has the rank index of this place, and its address."""
    role, _dash, index = place.partition("-")
    labels = job.labels(member)
    assert [labels[name] for name in ("role", "rank-index")] == [role, index]
    assert job.pod(member).endswith(f"-{role}-{labels['id']}")
    assert job.command(member)[1:] == job.asked
    ip = job.pods()[job.pod(member)]["status"]["podIP"]
    until(lambda: job.addresses()[job.pod(place)] == [ip], lambda: f"{ip} alone at {place}: {job.addresses()}")


def test_a_job_with_two_parameter_servers(make_ps: MakePs, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        begun(make_ps),
        a_lost_worker_is_replaced_at_its_place_and_nobody_waits_for_it,
        a_lost_ps_is_replaced_at_its_address_and_all_go_on_from_the_last_checkpoint,
        its_report_has_who_held_which_place,
    )


def a_lost_worker_is_replaced_at_its_place_and_nobody_waits_for_it(job: PsClusterJob) -> None:
    assert sorted(job.pods()) == [job.pod(member) for member in ("chief-0", "ps-0", "ps-1", "worker-0", "worker-1")]
    counts = {"active": 2, "succeeded": 0, "failed": 0, "pending": 0}
    assert job.status()["replicaStatuses"] == {"chief": counts | {"active": 1}, "ps": counts, "worker": counts}
    before, task = job.uids(), job.told("worker-0")[1]
    assert task.startswith('worker 0 of {"chief": ["click-chief-0:3333"], "worker": ["click-worker-0:3333", "click-w')
    at = time.time()
    job.kubectl("delete", "pod", job.pod("worker-0"), "--wait=false")
    back, told = job.told("worker-2")
    assert told == task
    trains(job, "worker-2")
    at_place(job, "worker-2", "worker-0")
    meanwhile = [step for step in job.steps("worker-1", at) if step.time < back]
    assert len(meanwhile) > 20, "the other worker waited for it"
    del before[job.pod("worker-0")]
    assert job.keeps(before)


def a_lost_ps_is_replaced_at_its_address_and_all_go_on_from_the_last_checkpoint(job: PsClusterJob) -> None:
    before, saved = job.uids(), job.newest_checkpoint()
    job.kubectl("delete", "pod", job.pod("ps-0"), "--wait=false")
    all_go_on_from(saved, job)
    del before[job.pod("ps-0")]
    assert job.keeps(before), "nobody else was replaced, and no container restarted"


def its_report_has_who_held_which_place(job: PsClusterJob) -> None:
    def holders() -> set[str]:
        read = job_of(of_cluster(job.name, job.namespace), time.time())
        return {each.member for each in read.timeline.holders} if len(read.timeline.rows) == 3 else set()

    until(lambda: holders() >= {"chief-0", "worker-0", "worker-1", "worker-2"}, lambda: f"{holders()} {job.story()}")


def all_go_on_from(saved: int, job: PsClusterJob) -> None:
    """With ps-2 in the place of ps-0."""
    serves, told = job.told("ps-2")
    assert told.startswith("ps 0 of")
    for member in (job.member(pod) for pod in job.pods() if "-ps-" not in pod):
        assert job.steps_on(member, serves)[0].step >= saved
    at_place(job, "ps-2", "ps-0")


@pytest.mark.exhaustive
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="the extra `tensorflow` is not installed")
def test_what_was_learned_outlives_a_ps_that_is_lost(make_ps: MakePs) -> None:
    job = begun(make_ps, steps=held_out.STEPS, pause=0.15)
    before, saved = job.uids(), job.newest_checkpoint()
    job.delete_pod(job.pod("ps-0"))
    all_go_on_from(saved, job)
    job.event("Recovered", "All workers train again with ps-0")
    del before[job.pod("ps-0")]
    assert job.keeps(before), "nobody else was replaced, and no container restarted"
    has_learned_what_an_undisturbed_job_has(job)


def has_learned_what_an_undisturbed_job_has(job: PsClusterJob) -> None:
    """It ends, and its loss is that of undisturbed runs; that of one that lost what one ps had learned is not."""
    until(lambda: job.status().get("phase") == "Succeeded", job.story, LONG)
    ((last, with_half_lost),) = held_out.losses(job.checkpoint(job.newest_checkpoint()))
    assert job.newest_checkpoint() >= held_out.STEPS
    assert held_out.is_undisturbed(last), f"{last} after {held_out.UNDISTURBED} in undisturbed runs"
    assert not held_out.is_undisturbed(with_half_lost)


LIMITED = {"resources": {"requests": {"cpu": "50m", "memory": "500Mi"}, "limits": {"memory": "1500Mi"}}}


def test_a_job_with_one_parameter_server_and_little_memory(make_ps: MakePs, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        begun(make_ps, 1, 1, containers=dict.fromkeys(("chief", "ps", "worker"), LIMITED)),
        a_ps_gets_more_memory_when_it_runs_out_and_when_its_user_says_so,
        whoever_runs_out_of_memory_gets_twice_as_much,
        a_worker_comes_and_goes,
    )


def a_ps_gets_more_memory_when_it_runs_out_and_when_its_user_says_so(job: PsClusterJob) -> None:
    before, saved = job.uids(), job.newest_checkpoint()
    (job.folder / "eat-ps").touch()
    serves, _told = job.told("ps-1")
    for member in ("chief-0", "worker-0"):
        assert job.steps_on(member, serves)[0].step >= saved
    at_place(job, "ps-1", "ps-0")
    failed(job, "ps-0")
    old, new = (job.pods()[job.pod(f"ps-{number}")] for number in (0, 1))
    assert (memory_of(old), memory_of(new)) == (("500Mi", "1500Mi"), ("1000Mi", "3000Mi"))
    assert (old["status"]["phase"], trainer_end(old)["exitCode"]) == ("Failed", 137)

    job.kubectl("annotate", "elasticjob", job.name, "outrider.dev/ps-resources=memory=4000Mi@rank-index=0")
    moves = job.event("PsMigrationStarted", "ps-0 moves from ps-1 to a new pod now: the checkpoint of step")
    saved = int(re.findall(r"of step (\d+)", moves["message"])[0])
    serves, _told = job.told("ps-2")
    for member in ("chief-0", "worker-0"):
        assert job.steps_on(member, serves)[0].step >= saved
    at_place(job, "ps-2", "ps-0")
    assert memory_of(job.pods()[job.pod("ps-2")]) == ("4000Mi", "4000Mi")
    until(lambda: job.pod("ps-1") not in job.pods(), job.story)
    del before[job.pod("ps-0")]
    assert before.items() <= job.uids().items(), "nobody else was replaced"


def whoever_runs_out_of_memory_gets_twice_as_much(job: PsClusterJob) -> None:
    for role in ("chief", "worker"):
        saved, at = job.newest_checkpoint(), time.time()
        (job.folder / f"eat-{role}").touch()
        assert job.steps_on(f"{role}-1", at)[0].step >= saved
        at_place(job, f"{role}-1", f"{role}-0")
        failed(job, f"{role}-0")
        old, new = (job.pods()[job.pod(f"{role}-{number}")] for number in (0, 1))
        assert (memory_of(old), memory_of(new)) == (("500Mi", "1500Mi"), ("1000Mi", "3000Mi"))
        assert (old["status"]["phase"], trainer_end(old)["exitCode"]) == ("Failed", 137)
        assert job.labels(f"{role}-1")["relaunches"] == "1"
        job.event("MemoryLimitRaised", "3000Mi instead of 1500Mi", f"{role}-0")


def a_worker_comes_and_goes(job: PsClusterJob) -> None:
    uids = job.uids()
    job.kubectl("scale", "elasticjob", job.name, "--replicas=2")
    trains(job, "worker-2", "worker-1", "chief-1", after=time.time())
    assert job.told("worker-2")[1].startswith("worker 1 of")
    assert job.keeps(uids)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=1")
    until(lambda: job.pod("worker-2") not in job.pods(), job.story)
    trains(job, "worker-1", "chief-1", after=time.time())
    assert job.keeps(uids), "nobody else was disturbed"


def test_an_image_without_tensorflow_and_a_tf_config_of_the_users_are_told(make_ps: MakePs) -> None:
    bare = {"image": WITHOUT_TENSORFLOW}
    own = {"env": [{"name": "TF_CONFIG", "value": '{"cluster": {}, "task": {"type": "worker", "index": 0}}'}]}
    job = make_ps(ps=1, worker=1, containers={"ps": bare, "worker": bare | own})
    job.event("UserTfConfigFound", "TF_CONFIG is set in spec.replicaSpecs.worker.template.spec.containers[0].env")
    until(lambda: job.status().get("phase") == "Failed", job.story)
    (failed,) = [each for each in job.status()["conditions"] if each["type"] == "Failed"]
    assert failed["status"] == "True"
    assert "ModuleNotFoundError: No module named 'tensorflow'" in failed["message"]
