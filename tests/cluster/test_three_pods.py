"""One job of three pods with two processes each that may train with two of them: it changes its size, and lives through
what happens to the network of one of them.

To cut it off from outside is nothing that a cluster offers. OUTRIDER_LAB names a command that can: `$OUTRIDER_LAB cut
NAMESPACE/POD` drops all traffic of the pod, and `$OUTRIDER_LAB heal NAMESPACE/POD` lets it through again.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.budgets import evicted
from tests.cluster.chaos import OUTRIDER, allow, chaos, holders, said
from tests.cluster.cluster import DEADLINE, ClusterJob, until
from tests.cluster.conftest import Make
from tests.local.chapters import live_through
from tests.local.training import members

LAB = os.environ.get("OUTRIDER_LAB", "")
NEVER = "1h"


def test_three_pods(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(replicas=2, least=2, most=3, maxRestarts=100, recovery={"silentAfter": "15s", "replaceAfter": NEVER}),
        scaled_up_its_newest_pod_knows_its_newest_size,
        scaled_down_and_up_it_loses_no_step,
        a_preempted_pod_is_replaced_by_the_next_id_with_its_rank_index,
        an_evicted_pod_leaves_when_a_checkpoint_is_written,
        the_network_of_a_pod_is_slow_as_long_as_the_command_stays,
        a_fault_ends_with_its_pod,
        a_fault_ends_with_its_time,
        a_pod_that_is_cut_off_for_a_moment_trains_on,
        the_network_of_a_pod_is_cut_and_the_pod_comes_back_when_that_is_undone,
        a_pod_that_is_cut_off_and_healed_in_time_comes_back_and_says_why_it_stopped,
        a_pod_that_is_cut_off_stops_its_ranks_and_is_replaced_while_the_others_train_on,
        held_by_a_finalizer_after_its_deletion_it_is_stopped_and_its_pods_end_in_order,
    )


def knows_its_size(job: ClusterJob, pod: str, size: int) -> None:
    assert {"name": "WORKER_NUM", "value": str(size)} in job.pods()[pod]["spec"]["containers"][0]["env"]


def scaled_up_its_newest_pod_knows_its_newest_size(job: ClusterJob) -> None:
    restart, world = job.training(4)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    _, grown = job.training(6, after=restart)
    (new,) = set(members(grown)) - set(members(world))
    knows_its_size(job, new, 3)


def scaled_down_and_up_it_loses_no_step(job: ClusterJob) -> None:
    restart, _ = job.training(6)
    mark = job.mark()
    job.kubectl("scale", "elasticjob", job.name, "--replicas=2")
    smaller, four = job.training(4, after=restart)
    assert four[0][0].loaded >= job.resized_behind(mark), "the world changed behind a checkpoint"
    until(lambda: len(job.pods()) == 2, job.story)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    job.training(6, after=smaller)


def a_preempted_pod_is_replaced_by_the_next_id_with_its_rank_index(job: ClusterJob) -> None:
    restart, world = job.training(6)
    first, *others = dict.fromkeys(members(world))
    job.delete_pod(first)
    _, world = job.training(6, after=restart)
    (new,) = set(members(world)) - set(others)
    assert members(world) == [new, new, *(pod for pod in others for _ in range(2))]
    assert job.pods()[new]["metadata"]["labels"]["outrider.dev/rank-index"] == "0"
    knows_its_size(job, new, 3)
    assert first not in job.pods()


def an_evicted_pod_leaves_when_a_checkpoint_is_written(job: ClusterJob) -> None:
    restart, world = job.training(6)
    pod, mark = members(world)[3], job.mark()
    until(lambda: not evicted(job, pod), job.story)
    smaller, rest = job.training(4, after=restart)
    job.event("MemberDraining", job.member(pod), after=mark)
    assert rest[0][0].loaded >= job.resized_behind(mark), "the world changed behind a checkpoint"
    job.training(6, after=smaller)


def the_network_of_a_pod_is_slow_as_long_as_the_command_stays(job: ClusterJob) -> None:
    _, world = job.training(6)
    pod = members(world)[5]
    allow(job, pod)
    with slowed(job, pod, 200) as slow:
        job.event("LinkSlow", job.member(pod))
        slow.send_signal(signal.SIGTERM)
    until(lambda: not holders(job), job.story)
    job.event("LinkRecovered", job.member(pod))
    job.training(6)


@contextmanager
def slowed(job: ClusterJob, pod: str, milliseconds: int) -> Iterator[subprocess.Popen[str]]:
    """By a command that stays; what is done meanwhile ends it."""
    words = (OUTRIDER, "chaos", "slow-network", f"{milliseconds}", "--for", "10m", "--pod", pod, "-n", job.namespace)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None
        assert f"every round trip of it takes {milliseconds} ms more" in slow.stdout.readline()
        yield slow


def a_fault_ends_with_its_pod(job: ClusterJob) -> None:
    restart, world = job.training(6)
    pod = members(world)[5]
    allow(job, pod)
    with slowed(job, pod, 20):
        job.kubectl("delete", "pod", pod, "--wait=false")
    until(lambda: not holders(job), job.story)
    job.training(6, after=restart)


def a_fault_ends_with_its_time(job: ClusterJob) -> None:
    _, world = job.training(6)
    pod = members(world)[4]
    allow(job, pod)
    assert said(job, pod, "slow-network", "20", "--for", "2s").endswith("slow-network=20:2s is over\n")
    until(lambda: not holders(job), job.story)


# -- a pod that is cut off ------------------------------------------------------------------------------------------
def lab(what: str, job: ClusterJob, pod: str) -> None:
    if not LAB:
        pytest.skip("OUTRIDER_LAB names no command that cuts the network of a pod")
    command = [*shlex.split(LAB), what, f"{job.namespace}/{pod}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, f"{command}: {done.stderr}"


@contextmanager
def cut(job: ClusterJob, pod: str) -> Iterator[None]:
    lab("cut", job, pod)
    try:
        yield
    finally:
        lab("heal", job, pod)


def ranks(job: ClusterJob, pod: str) -> list[str]:
    """The worker processes in a pod. The kubelet is on the node, so this needs no network of the pod's."""
    return re.findall(r"^rank \d+$", job.execute(pod, "cat /proc/[0-9]*/comm 2>/dev/null || true"), re.MULTILINE)


def stopped(job: ClusterJob, pod: str) -> None:
    """By itself, for nobody reaches it."""
    until(lambda: not ranks(job, pod), lambda: f"the ranks of {pod} to go: {job.story()}")
    assert '"Isolated"' in job.kubectl("logs", pod, "-c", "outrider-sidecar")


def patience(job: ClusterJob, **recovery: str) -> None:
    """The master has read it, and tells it to the members at once."""
    job.patch(recovery=recovery)
    generation = job.job()["metadata"]["generation"]
    until(lambda: job.status().get("observedGeneration") == generation, job.story)


def a_pod_that_is_cut_off_for_a_moment_trains_on(job: ClusterJob) -> None:
    restart, world = job.training(6)
    with cut(job, members(world)[2]):
        pass
    same, _ = job.training(6, more=len(world[0]) + 20)
    assert same == restart


def the_network_of_a_pod_is_cut_and_the_pod_comes_back_when_that_is_undone(job: ClusterJob) -> None:
    patience(job, silentAfter="5s")
    restart, world = job.training(6)
    pod, before, mark = members(world)[2], job.uids(), job.mark()
    allow(job, pod)
    told = said(job, pod, "cut-network")
    assert "every packet from and to it is dropped, for 3600 s, or until: outrider chaos undo --pod" in told
    assert "cut-network:3600s: every packet" in said(job, pod, "list")
    assert "cut-network is already active" in chaos(job, pod, "cut-network").stderr
    _, rest = job.training(None, after=restart)
    assert pod not in members(rest)
    job.event("MemberSilent", job.member(pod), after=mark)

    assert said(job, pod, "undo") == f"pod {job.namespace}/{pod}: cut-network:3600s undone\n"
    until(lambda: not holders(job), job.story)
    job.event("MemberIsolated", f"{job.member(pod)} reports: this member was cut off: neither the", after=mark)
    job.event("MemberReturned", job.member(pod), after=mark)
    job.training(6, after=restart)
    assert job.keeps(before)


def a_pod_that_is_cut_off_and_healed_in_time_comes_back_and_says_why_it_stopped(job: ClusterJob) -> None:
    restart, world = job.training(6)
    victim, mark = members(world)[4], job.mark()
    before, ends = job.uids()[victim], ends_of_ranks(job)
    with cut(job, victim):
        job.training(None, after=restart)
        stopped(job, victim)
    why = f"{job.member(victim)} reports: this member was cut off: neither the master nor"
    job.event("MemberIsolated", why, "this member was cut off", after=mark)
    job.event("MemberReturned", job.member(victim), after=mark)
    assert job.uids()[victim] == before
    job.training(6, after=restart)
    assert ends_of_ranks(job) == ends


def ends_of_ranks(job: ClusterJob) -> int:
    return len([each for each in job.status().get("faults", ()) if each["kind"] in ("WorkerExited", "WorkersGone")])


def a_pod_that_is_cut_off_stops_its_ranks_and_is_replaced_while_the_others_train_on(job: ClusterJob) -> None:
    patience(job, replaceAfter="20s")
    restart, world = job.training(6)
    victim, mark = members(world)[2], job.mark()
    assert len(ranks(job, victim)) == 2
    with cut(job, victim):
        _, new = job.training(None, after=restart)
        assert victim not in members(new)
        stopped(job, victim)
        job.event("SilentMemberDeleted", job.member(victim), after=mark)
        until(lambda: victim not in job.pods(), job.story)
        _, whole = job.training(6, after=restart)
        assert victim not in members(whole)


# -- its end --------------------------------------------------------------------------------------------------------
def held_by_a_finalizer_after_its_deletion_it_is_stopped_and_its_pods_end_in_order(job: ClusterJob) -> None:
    _, world = job.training(6)
    pods = set(members(world))
    job.kubectl(*finalizers('["example.com/held"]', job))
    job.kubectl("delete", "elasticjob", job.name, "--wait=false")
    try:
        job.event("JobStopped", "its ElasticJob is being deleted")
        until(lambda: {job.pods()[pod]["status"]["phase"] for pod in pods} == {"Succeeded"}, job.story)
    finally:
        job.kubectl(*finalizers("null", job))
    until(lambda: not job.job() and not job.pods(), job.story)


def finalizers(given: str, job: ClusterJob) -> list[str]:
    return ["patch", "elasticjob", job.name, "--type=merge", "-p", f'{{"metadata":{{"finalizers":{given}}}}}']
