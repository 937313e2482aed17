"""A real Prometheus scrapes a real job: its metrics are accepted, alerts fire, and no panel of a dashboard is empty.

What one machine cannot show (nodes, the API server, a job that failed) comes from the metrics of a core on its stage.
"""

from __future__ import annotations

import contextlib
import http.client
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.master.core.k8s.values.requests import Request
from outrider.master.service import metrics
from tests.local.node.prometheus import Prometheus, watching
from tests.local.training import Training, kill, one_job, pids, until
from tests.unit.manifests.test_monitoring import RULES, panels
from tests.unit.master.core.play import running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("prometheus"),  # one job for all
    pytest.mark.skipif(not shutil.which("prometheus"), reason="needs Prometheus (Debian: prometheus)"),
]
ON_STAGE = {"Suspect nodes": "digits"}
"""Panels of one job that need what only the job on its stage has: a node."""
VARIABLES = {"$namespace": ".*", "$__rate_interval": "5m", "$__range": "1h"}


def on_socket(path: Path) -> bytes:
    """The metrics of a local job."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connected:
        connected.settimeout(60)
        connected.connect(str(path))
        connected.sendall(b"GET /metrics HTTP/1.1\r\nHost: job\r\nConnection: close\r\n\r\n")
        with http.client.HTTPResponse(connected) as answer:
            answer.begin()
            assert answer.status == 200
            return answer.read()


def on_stage() -> bytes:
    """The metrics of a leading replica, with a job that has lost a rank to a bad node and then its last restart."""
    play = running(2, max_restarts=0)
    play.is_on("worker-1", "n7")
    play.crash("worker-1", signal=signal.SIGSEGV)
    play.run(5.0)
    requests = {(Request("create", "", "pods"), 201): 3, (Request("update", "coordination.k8s.io", "leases"), 0): 1}
    return metrics.Scrape([play.state], play.now, requests, True, {"token": 1}).text()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """One that keeps its checkpoints in memory too, and loses a rank."""
    folder = tmp_path_factory.mktemp("job")
    kept = ("--checkpoint-memory", "1Mi", "--checkpoint-path", str(folder / "model.pt"))
    with one_job(folder, "--nnodes", "3", *kept) as job:
        yield job


@pytest.fixture(scope="module")
def prometheus(job: Training, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    restart, _ = job.training(3)
    sources = {"local": lambda: on_socket(job.job_folder / "master.sock"), "stage": on_stage}
    with watching(tmp_path_factory.mktemp("prometheus"), sources, RULES["spec"]) as found:
        until(lambda: found.query('outrider_job_phase{job="train", phase="running"} == 1'), "the first scrape")
        _, world = job.training(3)
        job.event("CheckpointReplicated", 0)
        kill(pids(world)[1])
        job.training(3, restart)
        yield found


def test_promtool_finds_nothing_wrong_with_the_metrics_of_a_real_job(job: Training, prometheus: Prometheus) -> None:
    text = on_socket(job.job_folder / "master.sock")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done.stderr.decode()


def test_every_target_is_up_and_each_series_has_the_labels_of_its_job(prometheus: Prometheus) -> None:
    until(lambda: len(prometheus.query("up == 1")) == 2, lambda: prometheus.query("up"))
    assert {row["metric"]["job"] for row in prometheus.query("outrider_step")} == {"train", "digits"}


def test_an_alert_fires(prometheus: Prometheus) -> None:
    until(lambda: prometheus.query('ALERTS{alertname="OutriderJobFailed", alertstate="firing", job="digits"}'), "alert")


SHOWN = [(name, panel["title"], target["expr"]) for name, panel in panels() for target in panel["targets"]]


@pytest.mark.parametrize(("name", "title", "query"), SHOWN, ids=[f"{name} {title}" for name, title, _ in SHOWN])
def test_a_panel_shows_data(name: str, title: str, query: str, prometheus: Prometheus) -> None:
    for variable, value in {**VARIABLES, "$job": ON_STAGE.get(title, "train")}.items():
        query = query.replace(variable, value)

    def shown() -> bool:
        return any(row["value"][1] != "NaN" for row in prometheus.query(query))

    until(shown, lambda: f"{title}: {query}: {prometheus.query(query)}")
