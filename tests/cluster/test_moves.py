"""A planned move on the cluster: a job is suspended or deleted, applied again, and goes on behind its last step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.cluster import OF_A_POD, SYSTEM, Pods, kubectl, rolled_out, until
from tests.cluster.conftest import Make, MakePods
from tests.cluster.masters import leader, processes_of
from tests.cluster.reading import Document
from tests.cluster.test_injection import stateful_set, template
from tests.local import undisturbed
from tests.local.scripts import handling, migrating
from tests.local.training import Step


def test_a_job_that_is_suspended_and_applied_again_elsewhere_repeats_no_step(make: Make) -> None:
    job = make(script=migrating(OF_A_POD), migrationDir="/work/moves")
    until(lambda: len(job.steps()) > 40, job.story)
    job.event("StateOffered", "model, optimizer, progress")
    job.patch(suspend=True)
    until(lambda: not job.pods(), job.story)
    before = len(job.steps())
    made = max(step.step for step in job.steps())
    record = json.loads((job.folder / "moves" / job.name / "migration.json").read_text())
    assert record["step"] == made, job.story()

    job.kubectl("delete", "elasticjob", job.name)
    job.create(job.document)

    def again() -> list[Step]:
        return [step for step in job.steps()[before:] if step.rank == 0]

    until(lambda: len(again()) > 3, job.story)
    assert (again()[0].loaded, again()[0].step) == (made, made + 1)


def assert_no_step_is_repeated(job: Pods) -> None:
    """Since it was applied again. The script saves nothing by itself."""

    def again() -> list[Step]:
        return [step for step in job.steps() if step.rank == 0 and step.loaded]

    until(lambda: len(again()) > 3, job.story)
    made = max(step.step for step in job.steps() if not step.loaded)
    assert (again()[0].loaded, again()[0].step) == (made, made + 1), job.story()
    job.event("StateSaved", f"of step {made} ")
    for step in again():
        assert abs(step.loss - undisturbed.loss(step.step)) < undisturbed.SPREAD, step


@pytest.mark.parametrize("cascade", ["background", pytest.param("foreground", marks=pytest.mark.exhaustive)])
def test_a_job_that_is_deleted_while_it_trains_and_applied_again_repeats_no_step(make: Make, cascade: str) -> None:
    job = make(script=migrating(OF_A_POD), migrationDir="/work/moves")
    until(lambda: len(job.steps()) > 40, job.story)
    job.event("StateOffered", "model, optimizer, progress")
    job.kubectl("delete", "elasticjob", job.name, f"--cascade={cascade}")
    job.create(job.document)
    assert_no_step_is_repeated(job)
    if cascade == "background":  # in the foreground the name is taken until the pods are gone
        job.event("JobWaits", "its pods are not gone yet")


@pytest.mark.ends_masters
def test_a_master_that_goes_when_its_job_has_been_deleted_loses_no_step(make: Make) -> None:
    job = make(script=migrating(OF_A_POD), migrationDir="/work/moves", pod={"terminationGracePeriodSeconds": 40})
    until(lambda: len(job.steps()) > 40, job.story)
    job.event("StateOffered", "model, optimizer, progress")
    job.kubectl("delete", "elasticjob", job.name, "--wait=false")
    kubectl("-n", SYSTEM, "delete", "pod", leader()["metadata"]["name"], "--grace-period=0", "--force")
    job.create(job.document)
    assert_no_step_is_repeated(job)


@pytest.mark.ends_masters
def test_a_master_that_is_killed_before_its_job_is_deleted_is_followed_by_one_that_saves(
    make: Make, frozen: list[int]
) -> None:
    """The first one does nothing for the job any more: all that the next one knows of it are its pods."""
    job = make(script=migrating(OF_A_POD), migrationDir="/work/moves", pod={"terminationGracePeriodSeconds": 40})
    until(lambda: len(job.steps()) > 40, job.story)
    job.event("StateOffered", "model, optimizer, progress")
    first = leader()
    frozen += processes_of(first)
    if not frozen:
        pytest.skip("the nodes of this cluster are other machines, whose processes cannot be stopped from here")
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    job.kubectl("delete", "elasticjob", job.name, "--wait=false")
    job.create(job.document)
    job.event("JobStopped", "its ElasticJob was deleted")
    assert_no_step_is_repeated(job)
    # The kubelet would start it anew in half a minute, in the midst of another test.
    kubectl("-n", SYSTEM, "delete", "pod", first["metadata"]["name"], "--grace-period=0", "--force")
    rolled_out("outrider-master")


def of_a_job(job: Pods, **annotations: str) -> Document:
    spec = {"completions": 2, "parallelism": 2, "template": template(job, "Never", **annotations)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec}


@pytest.mark.parametrize(
    ("made", "cascade"),
    [
        (of_a_job, "background"),
        pytest.param(of_a_job, "foreground", marks=pytest.mark.exhaustive),
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
    until(lambda: len(job.steps()) > 20, job.story)
    job.event("StateOffered", "model, optimizer, progress")
    job.kubectl("delete", document["kind"].lower(), job.name, f"--cascade={cascade}", seconds=180.0)
    job.create(document)
    assert_no_step_is_repeated(job)


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
    job.event("JobBegunAnew")

    def again() -> dict[int, list[Step]]:
        made = [step for step in job.steps() if step.time > over and step.world == 2]
        return {rank: [step for step in made if step.rank == rank] for rank in (0, 1)}

    until(lambda: all(len(steps) > 5 for steps in again().values()), job.story)
    assert {(steps[0].loaded, steps[0].step) for steps in again().values()} == {(saved, saved + 1)}, job.story()
    assert job.job()["metadata"]["uid"] == uid
    older, newer = (tuple(map(int, status["generation"].split("."))) for status in (first, job.status()))
    assert newer > older
    assert job.status().get("exitCode") is None


AT_RUNG: dict[str, dict[str, Any]] = {
    "T0": {"nprocPerNode": 2},
    "T1": {
        "nprocPerNode": 1,
        "container": {
            "env": [{"name": "RUN", "value": "python"}],
            "command": ["sh", "-c", "$$RUN /work/train.py /work; exit $?"],
        },
    },
}
"""The script alone, and a shell script of which nothing is known."""


@pytest.mark.parametrize("rung", AT_RUNG)
def test_a_pod_of_a_script_with_a_handler_of_its_own_is_deleted_and_what_it_then_saves_is_gone_on_from(
    make: Make, rung: str
) -> None:
    job = make(
        script=handling(OF_A_POD), saveSignal="SIGUSR1", pod={"terminationGracePeriodSeconds": 60}, **AT_RUNG[rung]
    )
    until(lambda: len(job.steps()) > 40, job.story)
    assert {member["rung"] for member in job.status()["members"]} == {rung}
    job.kubectl("delete", "pod", job.pod("worker-1"), "--wait=false")
    again = until(lambda: [step for step in job.steps() if step.loaded], job.story)
    saved = job.saved[-1]  # the second, where the replacement took long and it was asked once more
    assert {step.loaded for step in again} == {saved}, job.story()
    assert job.pod("worker-1") not in {step.member for step in again}
    job.event("StateSaved", f"model.pt at step {saved}, asked by SIGUSR1")
    for step in again:
        assert abs(step.loss - undisturbed.loss(step.step)) < undisturbed.SPREAD, step


def test_another_controllers_pods_name_the_signal_by_an_annotation(pods: MakePods) -> None:
    job = pods("handling")
    (job.folder / "train.py").write_text(handling(OF_A_POD))
    job.create(stateful_set(job, save_signal="SIGUSR1"))
    until(lambda: len(job.steps()) > 20, job.story)
    job.kubectl("delete", "pod", f"{job.name}-1", "--wait=false")
    again = until(lambda: [step for step in job.steps() if step.loaded], job.story)
    assert {step.loaded for step in again} == set(job.saved), job.story()
    job.event("StateSaved", "model.pt at step", "asked by SIGUSR1")


def test_a_script_with_a_handler_of_its_own_is_sent_the_signal_before_its_job_goes(make: Make) -> None:
    job = make(script=handling(OF_A_POD), saveSignal="SIGUSR1")
    until(lambda: len(job.steps()) > 40, job.story)
    job.kubectl("delete", "elasticjob", job.name)
    job.create(job.document)
    again = until(lambda: [step for step in job.steps() if step.loaded], job.story)
    assert {step.loaded for step in again} == set(job.saved), job.story()
    job.event("StateSaved", "model.pt at step", "asked by SIGUSR1")


def test_a_directory_that_ends_with_its_pod_is_refused_when_the_job_is_applied(make: Make) -> None:
    job = make()
    document = {**job.document, "metadata": {"name": "lost"}}
    document["spec"] = {**job.document["spec"], "migrationDir": "/tmp/moves"}
    done = subprocess.run(
        ["kubectl", "-n", job.namespace, "create", "-f", "-"],
        input=json.dumps(document),
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert (
        "/tmp/moves lies on no volume: a planned move needs a directory on a persistent volume of yours" in done.stderr
    )
