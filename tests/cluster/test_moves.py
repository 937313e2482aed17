"""A planned move on the cluster: a job is suspended, deleted, applied again, and goes on behind its last step."""

from __future__ import annotations

import json
import subprocess

from tests.cluster.cluster import OF_A_POD, until
from tests.cluster.conftest import Make
from tests.local.test_moves import migrating
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
