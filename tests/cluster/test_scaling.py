"""A job that finds its own size: back where there is no room, and back where more members bring nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.cluster import DEADLINE, OF_A_POD, SLOT, ClusterJob, Document, until
from tests.cluster.conftest import Make

PAUSE = "time.sleep(0.06)"
assert PAUSE in OF_A_POD


def shown(job: ClusterJob) -> Document:
    return dict((job.status().get("elasticScaling") or {}).get("worker") or {})


def condition(job: ClusterJob, wanted: str) -> Document:
    return until(lambda: now if (now := shown(job)).get("elasticCondition") == wanted else None,
                 lambda: f"{wanted}: {shown(job)} {job.story()}", 240.0)  # fmt: skip


def outrider(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "outrider", *arguments], capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pods_that_find_no_room_take_it_back_to_the_last_size(make: Make, slots: Callable[[int], None]) -> None:
    slots(2)
    wanted = {"requests": {"cpu": "50m", "memory": "200Mi", SLOT: "1"}, "limits": {SLOT: "1"}}
    job = make(replicas=1, least=1, most=4, container={"resources": wanted}, nprocPerNode=1,
               script=OF_A_POD.replace(PAUSE, "time.sleep(0.2)"),
               scaling={"policy": "throughput", "minGain": 0.2, "cooldown": 0, "roomPatience": "3s"})  # fmt: skip
    job.event("ScaleDecided", "1 member makes", "2 members are tried")
    restart, _ = job.training(2)
    job.event("ScaleDecided", "2 members make", "4 members are tried")
    back = condition(job, "Stop")
    assert (back["continue"], back["currentReplicas"], back["lastReplicas"]) == (False, 2, 4)
    assert "There was no room for 4 members" in back["message"]
    assert back["nextEvaluation"]
    until(lambda: len(job.pods()) == 2, job.story)
    until(lambda: job.job()["spec"]["replicaSpecs"]["worker"]["replicas"] == 2, job.story)
    assert job.now()[0] == restart, "the two that train were not disturbed"


def test_members_that_add_nothing_go_again_and_a_user_who_scales_is_obeyed(make: Make, tmp_path: Path) -> None:
    logs = "time.sleep(0.2 * world); print('a loss of 0.25', flush=True)"
    job = make(replicas=2, least=1, most=4, nprocPerNode=1, script=OF_A_POD.replace(PAUSE, logs),
               scaling={"policy": "throughput", "cooldown": 0},
               metrics={"logPattern": "loss of (?P<loss>\\S+)"})  # fmt: skip
    job.event("ScaleDecided", "2 members make", "4 members are tried")
    found = condition(job, "ReachMaxMetric")
    assert (found["continue"], found["currentReplicas"]) == (False, 1)
    assert {each["replicas"] for each in found["measured"]} >= {1, 2, 4}
    assert job.status()["metrics"]["loss"] == 0.25
    picture = tmp_path / "curve.png"
    outrider("plot", job.name, "-n", job.namespace, "-o", str(picture))
    assert json.loads(outrider("status", job.name, "-n", job.namespace, "--scaling", "--json"))["current"] == 1
    assert "1 worker, ReachMaxMetric" in outrider("status", job.name, "-n", job.namespace, "--scaling")
    assert picture.read_bytes().startswith(b"\x89PNG")
    restart, _ = job.training(1)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=2")
    job.event("ScalingPaused", "to 2 members")
    job.training(2, after=restart)
    assert shown(job)["elasticCondition"] == "Stop"
