"""A container that is too small, and what is kept of pods that failed."""

from __future__ import annotations

from tests.cluster.cluster import ClusterJob, Document, pod_spec, until
from tests.cluster.conftest import Make, MakePods
from tests.local.training import SAVE_EVERY, members

SMALL = {"requests": {"cpu": "50m", "memory": "350Mi"}, "limits": {"memory": "700Mi"}}
EAT = "x = bytearray(2_500_000_000)"


def memory_of(pod: Document) -> tuple[str | None, str | None]:
    """Request and limit of the trainer's container."""
    resources = next(c for c in pod["spec"]["containers"] if c["name"] == "trainer")["resources"]
    return (resources["requests"].get("memory"), resources["limits"].get("memory"))


def failed(job: ClusterJob, member: str) -> Document:
    """The pod of a member that has failed and is kept: nothing in it runs."""
    return until(lambda: (pod := job.pods().get(job.pod(member))) and pod["status"]["phase"] == "Failed" and pod,
                 job.story)  # fmt: skip


def trainer_end(pod: Document) -> Document:
    status = next(s for s in pod["status"]["containerStatuses"] if s["name"] == "trainer")
    ended: Document = status["state"]["terminated"]
    return ended


def test_a_rank_that_runs_out_of_memory_is_replaced_by_a_pod_with_twice_as_much(make: Make) -> None:
    job = make(container={"resources": SMALL})
    restart, _ = job.training(4, more=SAVE_EVERY + 1)
    job.order(3, EAT)
    again, world = job.training(4, after=restart)
    assert sorted(set(members(world))) == [job.pod("worker-0"), job.pod("worker-2")]
    assert world[0][0].loaded > 0, "it goes on from its checkpoint"
    new = job.pods()[job.pod("worker-2")]
    assert memory_of(new) == ("700Mi", "1400Mi")
    labels = new["metadata"]["labels"]
    assert (labels["outrider.dev/rank-index"], labels["outrider.dev/relaunches"]) == ("1", "1")
    old = failed(job, "worker-1")
    assert memory_of(old) == ("350Mi", "700Mi")
    assert trainer_end(old)["exitCode"] == 137
    job.event("MemoryRaised", "The replacement of worker-1 gets 1400Mi instead of 700Mi")
    job.event("MemberFailed", "worker-1", "out of memory")
    until(lambda: job.status().get("memory") == {"1": "1400Mi"}, job.story)
    shown = {m["id"]: m["memory"] for m in job.status()["members"]}
    assert shown == {"worker-0": "700Mi", "worker-1": "700Mi", "worker-2": "1400Mi"}
    job.kubectl("delete", "pod", job.pod("worker-2"), "--grace-period=0", "--force")
    job.training(4, after=again)
    third = job.pods()[job.pod("worker-3")]
    assert memory_of(third) == ("700Mi", "1400Mi"), "it belongs to the rank index"
    assert third["metadata"]["labels"]["outrider.dev/relaunches"] == "1", "a deleted pod uses no budget"


def test_there_is_a_most_and_it_is_said_that_it_is_reached(make: Make) -> None:
    job = make(replicas=1, container={"resources": SMALL}, max_memory="900Mi", restart_limit=1)
    restart, _ = job.training(2)
    job.order(1, EAT)
    again, _ = job.training(2, after=restart)
    assert memory_of(job.pods()[job.pod("worker-1")]) == ("450Mi", "900Mi")
    job.order(1, EAT)
    status = job.phase("Failed")
    assert "it had 900Mi, and that is all that it may have" in status["message"]
    assert again > restart


def test_the_pod_of_another_controller_begins_again_in_place_and_its_user_is_told_what_to_raise(
    pods: MakePods,
) -> None:
    job = pods("plain-job")
    labels = {"app": job.name, "outrider.dev/inject": "true"}
    spec = {**pod_spec(job.folder, resources=SMALL), "restartPolicy": "Never"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    job.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name},
                "spec": {"completions": 2, "parallelism": 2, "template": template}})  # fmt: skip
    restart, _ = job.training(2)
    before = job.uids()
    job.order(1, EAT)
    job.training(2, after=restart)
    job.event("OutOfMemory", "700Mi", "raise resources.limits.memory in the pod template of the controller")
    assert job.keeps(before)


def test_a_rule_replaces_a_member_whose_rank_ends_with_its_code(make: Make) -> None:
    rule = {"exitCodes": [13], "action": "replaceNode"}
    job = make(recovery={"silentAfter": "10s", "rules": [rule]})
    restart, _ = job.training(4)
    old = job.pods()[job.pod("worker-1")]["spec"]["nodeName"]
    job.order(3, "os._exit(13)")
    job.training(4, after=restart)
    assert trainer_end(failed(job, "worker-1"))["exitCode"] == 13
    assert job.pods()[job.pod("worker-2")]["spec"]["nodeName"] != old
    job.event("MemberFailed", "rule 1 of recovery.rules says replaceNode for exit code 13")
    until(lambda: job.status().get("avoidedNodes") == [old], job.story)


def test_failed_pods_are_kept_as_many_as_wanted_and_hold_nothing(make: Make) -> None:
    job = make(keepFailedPods=1)
    restart, _ = job.training(4)
    for number in (1, 2):
        pod = job.pod(f"worker-{number}")
        job.execute(pod, f"kill -9 {job.pid_of(pod, 'outrider-tmpl')}")
        restart, _ = job.training(4, after=restart)
        failed(job, f"worker-{number}")
    until(lambda: job.pod("worker-1") not in job.pods(), job.story)
    assert sorted(job.pods()) == [job.pod(f"worker-{n}") for n in (0, 2, 3)]
    job.event("FailedPodDeleted", "worker-1", "keepFailedPods")
    assert job.pods()[job.pod("worker-3")]["metadata"]["labels"]["outrider.dev/relaunches"] == "2"


def test_a_pod_that_the_kubelet_would_start_again_is_replaced_after_it_too(make: Make) -> None:
    job = make(replicas=1, container={"resources": SMALL}, pod={"restartPolicy": "OnFailure"})
    restart, _ = job.training(2)
    job.order(0, EAT)
    job.training(2, after=restart)
    assert memory_of(job.pods()[job.pod("worker-1")]) == ("700Mi", "1400Mi")
    until(lambda: job.pod("worker-0") not in job.pods(), job.story)


def test_a_scaled_jobs_newest_pods_know_its_newest_size(make: Make) -> None:
    job = make(replicas=2, least=1, most=3)
    restart, _ = job.training(4)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    grown, _ = job.training(6, after=restart)
    job.kubectl("delete", "pod", job.pod("worker-0"), "--grace-period=0", "--force")
    job.training(6, after=grown)
    for member in ("worker-2", "worker-3"):
        environment = job.pods()[job.pod(member)]["spec"]["containers"][0]["env"]
        assert {"name": "WORKER_NUM", "value": "3"} in environment
