"""A bundle of a job in a real cluster, by the rights of a namespace's editor, and its replay."""

from __future__ import annotations

import subprocess

from outrider.cli.bundling import archive
from tests.cluster.chaos import OUTRIDER, outrider
from tests.cluster.cluster import DEADLINE, ClusterJob
from tests.cluster.conftest import Make


def test_a_job_is_bundled_by_who_may_edit_it_and_replayed(make: Make) -> None:
    job = make(maxRestarts=10)
    job.training(4)
    path = job.folder / "train.tar.gz"
    assert "left out: no recording: the master responded with HTTP 403" in bundled(job, "nobody", "-o", str(path))
    assert archive.RECORDING not in archive.read(path)[1]
    path.unlink()
    job.kubectl("create", "rolebinding", "editor", "--clusterrole=outrider-edit",
                f"--serviceaccount={job.namespace}:editor")  # fmt: skip
    bundled(job, "editor", "-o", str(path))
    assert {archive.RECORDING, archive.ELASTICJOB, archive.EVENTS} <= set(archive.read(path)[1])
    shown = subprocess.run([OUTRIDER, "replay", str(path)], capture_output=True, text=True, timeout=DEADLINE)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[-1].endswith("decides as recorded")


def bundled(job: ClusterJob, account: str, *flags: str) -> str:
    job.kubectl("create", "serviceaccount", account)
    done = outrider(job, "bundle", job.name, "--cluster", "--service-account", account, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout
