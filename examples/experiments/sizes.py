"""The experiments in which a job grows and shrinks with the room in the cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from experiment import PODS, Experiment
from hearing import NotSeen
from kubernetes import client
from scenarios import Rows, Scenario, chaos, ending, state, training

SLOT = "outrider.test/slot"
SLOTS = 4
SIDECAR = "outrider-sidecar"
RENDEZVOUS = ("restart_count", "group_world_size", "world_size")


def scale_up(x: Experiment) -> Rows:
    with room_for(SLOTS):
        other = x.another("scale-up/other.yaml", "other-job")
        x.submit()
        x.trains(3)
        x.event("FailedScheduling")
        x.show(PODS)
        pending = next(name for name, pod in x.hearing.pods.items() if pod["status"].get("phase") == "Pending")
        first, began = rendezvous(x), x.after(x.hearing.worlds()[0].steps[0][0])
        at = x.fault("kubectl", "-n", x.namespace, "delete", "pod", other, "--wait=false")
        x.continues(4, at)
        x.show(PODS)
        return [
            ("too little room", "worker-0, 1, 2 run, worker-3 is Pending", f"three run, {pending} is Pending"),
            ("three train", "about 2 min after the start", f"first step {began} after the start"),
            ("worker-0's log", "restart_count=0, group_world_size=3", first),
            *training(x, at, "2 min 22 s after the three began, with steps from 0; when there was room is not shown"),
            ("worker-0's log", "restart_count=1, group_world_size=4", rendezvous(x)),
            *ending(x),
        ]


def scale_down(x: Experiment) -> Rows:
    x.submit()
    x.trains()
    x.show(PODS)
    at = chaos(x, 1, "kill-launcher", "--signal", "HUP")
    x.continues(3, at)
    x.until(lambda: state(x, 1) == "Error", f"{x.pod(1)} to read Error")
    why = x.event("ReplacementLimitReached")[1]
    x.show(PODS)
    if x.pod(4) in x.hearing.first_seen:
        raise NotSeen("worker-1 to be left unreplaced")
    return [
        ("worker-1", "Error; it is not replaced", f"{state(x, 1)}. {why}"),
        *training(x, at, "seen in the log with the data's position of the checkpoint, no time given"),
        ("worker-0's log", "restart_count=1, group_world_size=3", rendezvous(x)),
        *ending(x),
    ]


SCENARIOS = {
    "scale-up": Scenario("Three of four pods find room, the fourth one after another job has ended.", scale_up),
    "scale-down": Scenario("worker-1 fails and must not be replaced.", scale_down),
}


@contextlib.contextmanager
def room_for(pods: int) -> Iterator[None]:
    """Give nodes a temporary resource, slots, which only these pods request: how much room a cluster has left is not
    known."""
    core = client.CoreV1Api()
    nodes = sorted(node.metadata.name for node in core.list_node().items if not node.spec.taints)[:pods]
    if not nodes:
        raise NotSeen("a node without taints")
    path = f"/status/capacity/{SLOT.replace('/', '~1')}"
    for number, node in enumerate(nodes):
        share = pods // len(nodes) + (number < pods % len(nodes))
        print(f"{node} has {share} of {SLOT}")
        core.patch_node_status(node, [{"op": "add", "path": path, "value": str(share)}])
    try:
        yield
    finally:
        for node in nodes:
            core.patch_node_status(node, [{"op": "remove", "path": path}])


def rendezvous(x: Experiment) -> str:
    """The rendezvous of the newest generation, from the sidecar's log of worker-0."""
    lines = x.show(f"kubectl logs {x.pod(0)} -c {SIDECAR}", lambda line: '"group_world_size"' in line)
    newest = json.loads(lines.splitlines()[-1])
    return ", ".join(f"{field}={newest[field]}" for field in RENDEZVOUS)
