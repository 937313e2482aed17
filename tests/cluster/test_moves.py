"""A planned move on the cluster: a job is suspended or deleted, applied again, and goes on behind its last step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.cluster import OF_A_POD, SYSTEM, ClusterJob, Pods, kubectl, rolled_out, until
from tests.cluster.conftest import Make, MakePods
from tests.cluster.masters import frozen, leader
from tests.cluster.owners import batch_job, stateful_set
from tests.cluster.reading import Document
from tests.local import undisturbed
from tests.local.chapters import live_through
from tests.local.scripts import handling, migrating
from tests.local.training import Step


def test_a_job_that_has_registered_its_state(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(script=migrating(OF_A_POD), migrationDir="/work/moves"),
        suspended_and_applied_again_elsewhere_it_repeats_no_step,
        deleted_while_it_trains_and_applied_again_it_repeats_no_step,
    )


def newest_load(job: Pods) -> int:
    """What the newest world has gone on from; each world of a script that saves nothing by itself has another one."""
    return max((step.loaded for step in job.steps()), default=0)


@contextmanager
def no_step_is_repeated(job: Pods, least: int = 40, *, is_told: bool = True) -> Iterator[frozenset[str]]:
    """The job trains and has offered its state; what is done meanwhile has it go away and come again. `is_told`: an
    Event says what was saved, which it cannot where the master is killed while that happens."""
    before = newest_load(job)
    until(lambda: len([step for step in job.steps() if step.loaded == before]) > least, job.story)
    job.event("SaveHandlerRegistered", "model, optimizer, progress")
    mark = job.mark()
    yield mark

    def again() -> list[Step]:
        return [step for step in job.steps() if step.rank == 0 and step.loaded > before]

    until(lambda: len(again()) > 3, job.story)
    made = max(step.step for step in job.steps() if step.loaded == before)
    assert (again()[0].loaded, again()[0].step) == (made, made + 1), job.story()
    if is_told:
        job.event("StateSaved", f"of step {made} ", after=mark)
    for step in again():
        assert abs(step.loss - undisturbed.loss(step.step)) < undisturbed.SPREAD, step


def suspended_and_applied_again_elsewhere_it_repeats_no_step(job: ClusterJob) -> None:
    with no_step_is_repeated(job):
        job.patch(suspend=True)
        until(lambda: not job.pods(), job.story)
        made = max(step.step for step in job.steps())
        record = json.loads((job.folder / "moves" / job.name / "migration.json").read_text())
        assert record["step"] == made, job.story()
        job.kubectl("delete", "elasticjob", job.name)
        job.create(job.document)


def deleted_while_it_trains_and_applied_again_it_repeats_no_step(job: ClusterJob) -> None:
    with no_step_is_repeated(job) as mark:
        job.kubectl("delete", "elasticjob", job.name)
        job.create(job.document)
    job.event("WaitingForOldPods", "Pods of a deleted job of the same name still exist", after=mark)


@pytest.mark.exhaustive
def test_in_the_foreground_the_name_is_taken_until_the_pods_are_gone(make: Make) -> None:
    job = make(script=migrating(OF_A_POD), migrationDir="/work/moves")
    with no_step_is_repeated(job):
        job.kubectl("delete", "elasticjob", job.name, "--cascade=foreground")
        job.create(job.document)


@pytest.mark.ends_masters
def test_masters_that_go_with_their_job(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(script=migrating(OF_A_POD), migrationDir="/work/moves", pod={"terminationGracePeriodSeconds": 40}),
        one_that_goes_when_its_job_has_been_deleted_loses_no_step,
        one_that_is_killed_before_its_job_is_deleted_is_followed_by_one_that_saves,
    )


def one_that_goes_when_its_job_has_been_deleted_loses_no_step(job: ClusterJob) -> None:
    with no_step_is_repeated(job, is_told=False):
        job.kubectl("delete", "elasticjob", job.name, "--wait=false")
        kubectl("-n", SYSTEM, "delete", "pod", leader()["metadata"]["name"], "--grace-period=0", "--force")
        job.create(job.document)
    rolled_out("outrider-master")


def one_that_is_killed_before_its_job_is_deleted_is_followed_by_one_that_saves(job: ClusterJob) -> None:
    """The first one does nothing for the job any more: all that the next one knows of it are its pods."""
    first = leader()
    with no_step_is_repeated(job) as mark, frozen(first):
        job.kubectl("delete", "elasticjob", job.name, "--wait=false")
        job.create(job.document)
        job.event("JobStopped", "its ElasticJob was deleted", after=mark)
        # The kubelet would start it anew in half a minute, in the midst of another test.
        kubectl("-n", SYSTEM, "delete", "pod", first["metadata"]["name"], "--grace-period=0", "--force")
    rolled_out("outrider-master")


@pytest.mark.parametrize(
    ("made", "cascade"),
    [
        (batch_job, "background"),
        pytest.param(batch_job, "foreground", marks=pytest.mark.exhaustive),
        (stateful_set, "background"),
        pytest.param(stateful_set, "foreground", marks=pytest.mark.exhaustive),
    ],
    ids=["Job", "Job-foreground", "StatefulSet", "StatefulSet-foreground"],
)
def test_a_job_of_another_controller_that_is_deleted_and_applied_again_repeats_no_step(
    pods: MakePods, made: Callable[..., Document], cascade: str
) -> None:
    job = pods("moved")
    (job.folder / "train.py").write_text(migrating(OF_A_POD))
    document = made(job, migration_dir="/work/moves")
    job.create(document)
    with no_step_is_repeated(job, least=20):
        job.kubectl("delete", document["kind"].lower(), job.name, f"--cascade={cascade}")
        job.create(document)


@pytest.mark.exhaustive
def test_a_stateful_set_whose_job_is_over_begins_anew_when_it_is_rolled_out(pods: MakePods) -> None:
    job = pods("anew")
    job.create(stateful_set(job))
    job.training(2)
    until(lambda: job.steps() and job.saved, job.story)
    job.end_well()
    first = job.phase("Succeeded")
    (job.folder / "end").unlink()
    uid, over = job.job()["metadata"]["uid"], max(step.time for step in job.steps())
    saved = max(job.saved)
    job.kubectl("set", "env", f"statefulset/{job.name}", "AGAIN=1")
    job.event("JobRestarted")

    def again() -> dict[int, list[Step]]:
        made = [step for step in job.steps() if step.time > over and step.world == 2]
        return {rank: [step for step in made if step.rank == rank] for rank in (0, 1)}

    until(lambda: all(len(steps) > 5 for steps in again().values()), job.story)
    assert {(steps[0].loaded, steps[0].step) for steps in again().values()} == {(saved, saved + 1)}, job.story()
    assert job.job()["metadata"]["uid"] == uid
    older, newer = (tuple(map(int, status["generation"].split("."))) for status in (first, job.status()))
    assert newer > older
    assert job.status().get("exitCode") is None


# -- a script with a handler of its own ------------------------------------------------------------------------------
def test_a_script_with_a_handler_of_its_own(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(script=handling(OF_A_POD), saveSignal="SIGUSR1", pod={"terminationGracePeriodSeconds": 60}),
        its_pod_is_deleted_and_what_it_then_saves_is_gone_on_from,
        it_is_sent_the_signal_before_its_job_goes,
    )


def its_pod_is_deleted_and_what_it_then_saves_is_gone_on_from(job: ClusterJob, mode: str = "fork") -> None:
    until(lambda: len(job.steps()) > 40, job.story)
    assert {member["mode"] for member in job.status()["members"]} == {mode}
    job.kubectl("delete", "pod", job.pod("worker-1"), "--wait=false")
    again = until(lambda: [step for step in job.steps() if step.loaded], job.story)
    saved = job.saved[-1]  # the second, where the replacement took long and it was asked once more
    assert {step.loaded for step in again} == {saved}, job.story()
    assert job.pod("worker-1") not in {step.member for step in again}
    job.event("StateSaved", f"model.pt at step {saved}, as requested by SIGUSR1")
    for step in again:
        assert abs(step.loss - undisturbed.loss(step.step)) < undisturbed.SPREAD, step


def it_is_sent_the_signal_before_its_job_goes(job: ClusterJob) -> None:
    before, mark = newest_load(job), job.mark()
    until(lambda: len([step for step in job.steps() if step.loaded == before]) > 40, job.story)
    saved = set(job.saved)
    job.kubectl("delete", "elasticjob", job.name)
    job.create(job.document)
    again = until(lambda: [step for step in job.steps() if step.loaded > before], job.story)
    assert {step.loaded for step in again} == set(job.saved) - saved, job.story()
    job.event("StateSaved", "model.pt at step", "requested by SIGUSR1", after=mark)


def test_a_shell_script_of_which_nothing_is_known_is_asked_too(make: Make) -> None:
    run = {"env": [{"name": "RUN", "value": "python"}], "command": ["sh", "-c", "$$RUN /work/train.py /work; exit $?"]}
    grace = {"terminationGracePeriodSeconds": 60}
    job = make(script=handling(OF_A_POD), saveSignal="SIGUSR1", pod=grace, container=run, nprocPerNode=1)
    its_pod_is_deleted_and_what_it_then_saves_is_gone_on_from(job, mode="relaunch")


def test_another_controllers_pods_name_the_signal_by_an_annotation(pods: MakePods) -> None:
    job = pods("handling")
    (job.folder / "train.py").write_text(handling(OF_A_POD))
    job.create(stateful_set(job, save_signal="SIGUSR1"))
    until(lambda: len(job.steps()) > 20, job.story)
    job.kubectl("delete", "pod", f"{job.name}-1", "--wait=false")
    again = until(lambda: [step for step in job.steps() if step.loaded], job.story)
    assert {step.loaded for step in again} == set(job.saved), job.story()
    job.event("StateSaved", "model.pt at step", "requested by SIGUSR1")
