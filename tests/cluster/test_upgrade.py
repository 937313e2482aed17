"""Jobs train through an upgrade from the release before, through its rollback, and through the end of Outrider: no
process ends, no step is lost, no pod is made without its sidecar; and whichever release is the master mends them.

What the release before is comes from the history of this repository. `$OUTRIDER_LAB image TAG FOLDER -f DOCKERFILE`
builds its image on every node.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes import config

from tests import release_before
from tests.cluster.cluster import SYSTEM, ClusterJob, kubectl, manifests, rolled_out, until
from tests.cluster.conftest import Make
from tests.cluster.reading import listed
from tests.cluster.test_handing_over import every_pod_injected, masters_serve_the_webhook
from tests.documented import beginning_with

IMAGE_BEFORE = "outrider/sidecar:before"
MORE = 20
"""Steps that are enough to say that training goes on."""
MASTERS_BEFORE = 2
"""Each of them cuts the API server's connection when it ends, and a review that is on its way is lost with it."""

pytestmark = [pytest.mark.exhaustive, pytest.mark.ends_masters]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifests of the release before, whose image is on every node."""
    lab = os.environ.get("OUTRIDER_LAB")
    if not lab:
        pytest.skip("OUTRIDER_LAB names no command that builds an image on the nodes")
    folder = release_before.unpacked(tmp_path_factory.mktemp("before"))
    build = [*shlex.split(lab), "image", IMAGE_BEFORE, str(folder), "-f", str(folder / "Dockerfile.sidecar")]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    wanted = folder / "manifests" / "kustomization.yaml"
    wanted.write_text(wanted.read_text().replace("newTag: dev", f"newTag: {IMAGE_BEFORE.split(':')[1]}"))
    return wanted.parent


@pytest.fixture
def today_afterwards() -> Iterator[None]:
    yield
    kubectl("apply", "-k", manifests())
    rolled_out("outrider-webhook", "outrider-master")


def as_documented(begins: str) -> None:
    """Runs the commands of the documentation that begin with these words."""
    commands = beginning_with(begins, tag="run: tests/cluster/test_upgrade.py").text
    done = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{commands}{done.stdout}{done.stderr}"


def uninstall() -> None:
    as_documented("kubectl delete mutatingwebhookconfiguration")


def install(folder: Path) -> None:
    """The release before, where nothing of ours is."""
    kubectl("apply", "-k", str(folder))
    rolled_out("outrider-master")


def upgrade() -> None:
    kubectl("apply", "-k", manifests())
    rolled_out("outrider-webhook", "outrider-master")
    until(lambda: not masters_serve_the_webhook(), "the masters of today")


def roll_back(folder: Path) -> None:
    kubectl("apply", "-k", str(folder))
    as_documented("kubectl -n outrider-system rollout status deployment outrider-master")
    until(masters_serve_the_webhook, "the masters of the release before")
    left = [each for kind in ("poddisruptionbudgets", "pods") for each in listed(kind, SYSTEM)]
    assert [each["metadata"]["name"] for each in left if "outrider-webhook" in each["metadata"]["name"]
            and "deletionTimestamp" not in each["metadata"]] == []  # fmt: skip


@contextmanager
def none_hurt(*jobs: ClusterJob) -> Iterator[None]:
    """Meanwhile no process of theirs ends, and afterwards they go on; each rank makes one step behind the other."""
    before = [(job, job.now()[0], job.uids()) for job in jobs]
    yield
    for job, restart, uids in before:
        size = len(job.worlds()[restart])
        made = len(job.worlds()[restart][0])
        same, world = job.training(size, more=made + MORE)
        assert same == restart, job.story()
        assert job.keeps(uids), job.story()
        for steps in world.values():
            assert [each.step for each in steps] == list(range(steps[0].step, steps[0].step + len(steps)))
            assert len({each.pid for each in steps}) == 1


def is_mended(job: ClusterJob) -> None:
    """A rank is killed, and the master that is there now has the job train from its checkpoint again."""
    restart, world = job.training(2)
    job.training(2, more=len(world[0]) + MORE)
    pod = next(name for name in job.pods() if name.startswith(job.pod("worker-")) and name != job.pod("worker-0"))
    job.execute(pod, f"kill -9 {job.pid_of(pod, 'rank 1')}")
    job.training(2, after=restart)


def replace_a_pod(job: ClusterJob) -> None:
    """Made anew by the release that is there now, it trains with one that the other release has made."""
    restart, _ = job.training(2)
    job.kubectl("delete", "pod", job.pod("worker-1"), "--wait=false")
    job.training(2, after=restart)


def test_jobs_train_through_upgrade_rollback_and_uninstall(
    make: Make, namespace: str, before: Path, today_afterwards: None
) -> None:
    config.load_kube_config()
    uninstall()
    install(before)
    old = make("old", nprocPerNode=1)
    old.training(2)

    with none_hurt(old), every_pod_injected(namespace, but=MASTERS_BEFORE):
        upgrade()
    is_mended(old)
    replace_a_pod(old)
    new = make("new", nprocPerNode=1)
    new.training(2)

    with none_hurt(old, new), every_pod_injected(namespace):
        roll_back(before)
    is_mended(old)
    is_mended(new)
    replace_a_pod(new)

    with none_hurt(old, new):
        uninstall()
