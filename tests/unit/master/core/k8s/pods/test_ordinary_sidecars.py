"""What becomes of a pod whose sidecar is an ordinary container, as below Kubernetes 1.29 (docs/adr/0026).

What was recorded with its moments is played in test_recorded_ends.py. Here the documents are those that a Kubernetes
1.20 showed (`seen/`), the moments made up. Its kubelet sends SIGTERM to all containers of a pod that has to go at once,
and to nobody where one has ended by itself.
"""

from __future__ import annotations

from copy import deepcopy

import pytest

from tests.unit.master.core.k8s.documents import recorded
from tests.unit.master.core.k8s.pods.recordings import ORDINARY, Line, Recording

MEMBERS = 2
AT = 10.0
"""When it happens to worker-1."""


def documents(number: int, *names: str) -> list[Line]:
    """Of one pod, a tenth of a second apart from `AT` on; before, it begins."""
    shown = [(0.1, "creating"), (1.0, "running"), *((AT + 0.1 * i, name) for i, name in enumerate(names))]
    lines: list[Line] = []
    for at, name in shown:
        pod = deepcopy(recorded(name))
        pod["metadata"] |= {"name": f"mnist-worker-{number}", "uid": f"u{number}"}
        pod["metadata"]["labels"] |= {"outrider.dev/member": f"worker-{number}", "outrider.dev/id": str(number)}
        lines.append({"at": at, "type": "MODIFIED", "object": pod})
    return lines


def happens(number: int, at: float, **what: object) -> Line:
    return {"at": at, "pod": f"mnist-worker-{number}", **what}


def begins(number: int) -> list[Line]:
    said = ("Began", ""), ("MasterConnected", ""), ("TrainerConnected", "template (pid 23)")
    return [
        happens(number, 1.1 + 0.1 * i, of="outrider-sidecar", log={"kind": kind, "message": message})
        for i, (kind, message) in enumerate(said)
    ]


def play(*lines: Line, names: tuple[str, ...], restart_limit: int = 0) -> Recording:
    """Of three pods worker-2 begins where it is wanted; `lines` and documents of these `names` are worker-1's."""
    worker = {
        "replicas": MEMBERS,
        "restartLimit": restart_limit,
        "template": {"spec": {"containers": [{"name": "main"}]}},
    }
    of_all = [line for number in (0, 2) for line in (*documents(number), *begins(number))]
    of_one = [*documents(1, *names), *begins(1), *lines]
    job: Line = {"at": 0.0, "elasticjob": {"name": "mnist", "spec": {"replicaSpecs": {"worker": worker}}}}
    ordered = sorted([*of_all, *of_one], key=lambda line: line["at"])
    return Recording(ORDINARY, "mnist", lines=[job, *ordered]).play(until=30.0)


def told_to_go(number: int = 1) -> list[Line]:
    """SIGTERM reaches all containers in one moment."""
    return [happens(number, AT + 0.02, signal="SIGTERM", to=container) for container in ("main", "outrider-sidecar")]


def test_the_sidecars_word_is_enough_where_no_document_says_so_yet() -> None:
    """A node that shuts down, or is short, deletes no pod."""
    job = play(*told_to_go(), names=())
    assert job.said("MemberDraining")[0].startswith("worker-1 has to leave (SIGTERM)")
    assert job.said("MemberFailed") == []


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("trainer_failed", "all_failed"), "failed with exit code 3: the trainer's container ended"),
        (("out_of_memory",), "failed with exit code 137: the trainer's container ended (OOMKilled)"),
        (("init_failed",), "failed with exit code 7: the init container outrider-hooks ended"),
    ],
)
def test_a_pod_that_fails_by_itself_is_counted_and_stays(names: tuple[str, ...], why: str) -> None:
    job = play(happens(1, AT - 0.1, exit=1, of="main"), names=names)
    assert why in job.said("MemberFailed")[0]
    assert "as often as restartLimit (0) allows" in job.said("ReplacementLimitReached")[0]
    assert (job.removed(), job.said("MemberDraining")) == ([], [])
