"""The experiments: the fault in each, the expected events, and the results in DLRover's documents.

A scenario returns its table: what is compared, DLRover's documented result, and the result here. The documented numbers
come from listings in two of its texts, the tutorial on fault tolerance and elasticity and the article on ChaosBlade;
most of these only show the ages of pods. They were measured on other machines, so they show what follows a fault and
its order of magnitude, not which machine is faster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiment import PODS, RANK_INDEX, Experiment
from hearing import TRAINER, NotSeen

Rows = list[tuple[str, str, str]]
OUTRIDER = str(Path(sys.executable).parent / "outrider")


@dataclass(frozen=True)
class Scenario:
    title: str
    play: Callable[[Experiment], Rows]


def preempted(x: Experiment) -> Rows:
    x.submit()
    x.trains()
    x.show(PODS)
    at = x.fault("kubectl", "-n", x.namespace, "delete", "pod", x.pod(0), "--wait=false")
    made = replacement(x, 4)
    x.continues(4, at)
    x.until(lambda: x.pod(0) not in x.hearing.pods, "worker-0 to be gone")
    x.show(PODS)
    return [
        ("pods after", "worker-1, 2, 3 and a new worker-4", pods_of(x)),
        ("worker-4 made", "8 s after the deletion or sooner", x.after(made)),
        *training(x, at, "seen in the log, no time given"),
        *ending(x),
    ]


def process(x: Experiment) -> Rows:
    x.submit()
    x.trains()
    before = uids(x)
    x.show(PODS)
    at = chaos(x, 1, "kill-process")
    x.continues(4, at)
    x.show(PODS)
    if uids(x) != before:
        raise NotSeen("the pods to be the same as before")
    return [
        ("pods after", "the same four, no restart shown", f"the same four: {pods_of(x)}"),
        *training(x, at, "seen in the log, no time given"),
        *ending(x),
    ]


def network(x: Experiment) -> Rows:
    x.submit()
    x.trains()
    x.show(PODS)
    at = chaos(x, 1, "cut-network")
    x.continues(3, at)
    x.report(f"step {x.hearing.highest()} in 3 pods")
    made = replacement(x, 4)
    x.continues(4, at)
    x.until(lambda: x.pod(1) not in x.hearing.pods, "worker-1 to be gone")
    x.show(PODS)
    return [
        ("worker-1", "Error, its pod stays", "stops its rank by itself; deleted, because it cannot be reached"),
        ("worker-4 made", "4 min 22 s after the others; when the fault came is not shown", x.after(made)),
        *training(x, at, "seen in the log with worker-4, no time given"),
        *ending(x),
    ]


def straggler(x: Experiment) -> Rows:
    made, others = left_out(x)
    return [
        ("round 0", "worker-1 152 s, its partner 207 s, the others 20 s", elapsed(x, 0)),
        ("round 1", "worker-1 136 s, the others 20 to 23 s", elapsed(x, 1)),
        ("round 2, with worker-4", "all four 21 to 23 s", elapsed(x, 2)),
        ("worker-1", "Error; its log names the stragglers and ends in a traceback", own_words(x, 1)),
        ("worker-4 made", "7 min after the others", made),
        *others,
        *ending(x, "Completed, worker-1 Error"),
    ]


def straggler_kept(x: Experiment) -> Rows:
    x.submit()
    kept = x.event("NodeCheckStraggler", "worker-1")[1]
    x.trains()
    x.show(PODS)
    return [
        ("round 0", "worker-1 152 s, its partner 207 s, the others 20 s", elapsed(x, 0)),
        ("round 1", "worker-1 136 s, the others 20 to 23 s", elapsed(x, 1)),
        ("worker-1", "no run shown: named in the log, and does not exit", kept),
        ("pods after", "not shown", f"the same four: {pods_of(x)}"),
        ("first step", "not shown", x.after(x.hearing.worlds()[0].began)),
        *ending(x),
        ("a step takes", "not shown", f"{pace(x):.3f} s"),
    ]


def fault_node(x: Experiment) -> Rows:
    made, others = left_out(x)
    return [
        ("first round", "worker-1 and its partner failed", status(x, 0)),
        ("second round", "worker-1 failed", status(x, 1)),
        ("third, with worker-4", "all four passed", status(x, 2)),
        ("worker-1", "Error; its log ends in a traceback that says no more than network breakdown", own_words(x, 1)),
        ("worker-4 made", "8 min after the others", made),
        *others,
        *ending(x),
    ]


SCENARIOS = {
    "preempted": Scenario("A pod is preempted: worker-0 is deleted while it trains.", preempted),
    "straggler": Scenario("The CPU of worker-1 is loaded: it is slow and is replaced.", straggler),
    "straggler-kept": Scenario("The same without the exclusion: it is reported and trains.", straggler_kept),
    "fault-node": Scenario("worker-1 starts on a broken machine.", fault_node),
    "process": Scenario("A training process is killed in worker-1.", process),
    "network": Scenario("worker-1 is cut off the network while it trains.", network),
}


# -- what they share ----------------------------------------------------------------------------------------------
def left_out(x: Experiment) -> tuple[str, Rows]:
    """worker-1 fails the node check: when its replacement worker-4 was created, and the rows about its training."""
    x.submit()
    excluded, _ = x.event("MemberExcluded", "worker-1")
    made = replacement(x, 4)
    x.trains()
    x.show(PODS)
    when = f"{x.after(made)}, worker-1 left out at {x.after(excluded)}"
    return when, [("first step", "no time given", x.after(x.hearing.worlds()[0].began))]


def chaos(x: Experiment, member: int, *what: str) -> float:
    words = ("chaos", *what, "--pod", x.pod(member), "-n", x.namespace)
    at = x.fault(OUTRIDER, *words, shown=" ".join(("outrider", *words)))
    x.report("done")
    return at


def replacement(x: Experiment, member: int) -> float:
    """When the pod of the replacement was first seen; it has the rank index of the replaced member."""
    x.until(lambda: x.pod(member) in x.hearing.pods, f"a pod {x.pod(member)}")
    return x.hearing.first_seen[x.pod(member)]


def state(x: Experiment, member: int) -> str:
    return x.kubectl("get", "pod", x.pod(member), "--no-headers").split()[2]


def elapsed(x: Experiment, number: int) -> str:
    """The seconds of a round of the node check, by rank index."""
    return x.event("NodeCheckRound", f"check round {number}: elapsed")[1].partition("elapsed ")[2]


def status(x: Experiment, number: int) -> str:
    """The result of a round of the node check, by rank index."""
    return x.event("NodeCheckRound", f"check round {number}: status")[1].partition("status ")[2]


def own_words(x: Experiment, member: int) -> str:
    """How the pod of a member ended, and the lines of Outrider in its log."""
    x.until(lambda: state(x, member) == "Error", f"{x.pod(member)} to read Error")
    code = "{.status.containerStatuses[?(@.name=='trainer')].state.terminated.exitCode}"
    lines = x.show(f"kubectl logs {x.pod(member)} -c {TRAINER}", lambda line: "outrider:" in line)
    return f"Error, code {x.kubectl('get', 'pod', x.pod(member), '-o', f'jsonpath={code}')}: {lines}"


def uids(x: Experiment) -> dict[str, tuple[str, int]]:
    """The uids of the pods, and how often their containers were restarted."""
    return {name: (pod["metadata"]["uid"], sum(c["restartCount"] for c in pod["status"]["containerStatuses"]))
            for name, pod in x.hearing.pods.items()}  # fmt: skip


def pods_of(x: Experiment) -> str:
    listed = sorted((int(pod["metadata"]["labels"][RANK_INDEX]), name.rpartition("worker-")[2])
                    for name, pod in x.hearing.pods.items() if name in x.running())  # fmt: skip
    return ", ".join(f"worker-{member} (rank index {index})" for index, member in listed)


def training(x: Experiment, after: float, documented: str) -> Rows:
    """For each generation since then: when it made its first step and its first new step, and the time without
    training."""
    rows: Rows = []
    for world in (w for w in x.hearing.worlds() if w.began > after and w.steps):
        first, new = world.steps[0][0], x.hearing.new_steps(world)
        last = max(at for each in x.hearing.worlds() for at, _step in each.steps if at < world.began)
        result = f"{x.after(first)} after the fault, from the checkpoint of step {world.loaded}"
        result += f"; new steps after {x.after(new[0][0])}" if new and new[0][0] > first else ""
        rows.append((f"{world.processes} continue", documented, f"{result}; no training for {first - last:.1f} s"))
    return rows


def pace(x: Experiment) -> float:
    """Seconds per step in the newest generation."""
    (first_at, first), *_, (last_at, last) = x.hearing.worlds()[-1].steps
    return (last_at - first_at) / (last - first)


def ending(x: Experiment, documented: str = "not shown") -> Rows:
    x.succeeds()
    x.show_events()
    x.show("kubectl get elasticjob")
    x.show(PODS)
    states = [line.split()[2] for line in x.kubectl("get", "pods", "--no-headers").splitlines()]
    counts = ", ".join(f"{states.count(each)} {each}" for each in sorted(set(states)))
    return [("in the end", documented, f"Succeeded; pods: {counts}")]
