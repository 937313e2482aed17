"""Documents of jobs as a master writes them, for the tests of the report."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from outrider.report.job import Sources
from outrider.report.page import report
from outrider.report.words import CAUSES

BEGAN = 1_795_230_000.0
NAMES = list(CAUSES)
RECOVERY = ("detecting", "stopping", "waiting", "starting", "importing", "rendezvous", "loading", "first_step",
            "repeated_steps", "productive")  # fmt: skip
STAGES = {"detect": 0.2, "stop": 0.4, "wait": 3.1, "agree": 0.1, "start": 0.3, "import": 0.9, "rendezvous": 0.2,
          "load": 0.6, "first_step": 0.5, "new_step": 8.2}  # fmt: skip
TRACEBACK = """Traceback (most recent call last):
  File "/work/train.py", line 88, in <module>
    main()
  File "/work/train.py", line 61, in main
    loss = step(batch)
RuntimeError: CUDA error: an illegal memory access was encountered"""


def at(seconds: float) -> str:
    return datetime.fromtimestamp(BEGAN + seconds, UTC).isoformat().replace("+00:00", "Z")


def fault(seconds: float, member: int = 2, kind: str = "WorkerExited", **changes: Any) -> dict[str, Any]:
    """A fault of the history."""
    moment = BEGAN + seconds
    return {
        "at": moment, "kind": kind, "member": f"worker-{member}", "rank_index": member, "ranks": [member],
        "node": f"node-{member % 8}", "generation": "1.1",
        "reason": f"Rank {member} on worker-{member} was killed by SIGKILL.",
        "pod": {"phase": "Running", "reason": "", "exit_code": None},
        "evidence": [{"what": "exit", "member": f"worker-{member}", "rank": member, "sentence": "exit code 1",
                      "error": "RuntimeError: CUDA error", "frame": "train.py:61 in main", "traceback": TRACEBACK,
                      "step": 400}],
        "decisions": [[moment + 0.1, "GenerationStopped", "All ranks are stopped, because one of them ended."],
                      [moment + 14.5, "Recovered", "14.5 s were lost, 8.2 s of them for repeated steps."]],
        "stages": STAGES, "seconds_lost": sum(STAGES.values()), "cost": {"repeated_steps": 32.8, "waiting": 12.4},
        "recovered_at": moment + 14.5, "step": 400,
    } | changes  # fmt: skip


def hang(seconds: float, ranks: int = 8, culprit: int = 3) -> dict[str, Any]:
    waits = ["all_reduce (torch/distributed/distributed_c10d.py:2810)", "backward (train.py:52)", "main (train.py:61)"]
    evidence = [
        {"what": "rank", "member": f"worker-{rank}", "rank": rank, "state": "step",
         "stack": ["sleep (data.py:9)", "main (train.py:58)"] if rank == culprit else waits,
         "collective": "" if rank == culprit else "ALLREDUCE number 812 of group default, waits for 60.2 s"}
        for rank in range(ranks)
    ]  # fmt: skip
    reason = (
        f"No rank of generation 1.1 has completed a step for 60 s (limit 60 s): rank {culprit} on worker-{culprit} "
        f"(node node-{culprit}) has not called ALLREDUCE 812; 7 ranks wait in it."
    )
    stages = STAGES | {"detect": 60.2, "wait": 0.0}
    return fault(seconds, culprit, "HangDetected", evidence=evidence, reason=reason, stages=stages,
                 seconds_lost=sum(stages.values()))  # fmt: skip


def spans(faults: list[float], until: float, *, late: int = 0) -> list[list[int]]:
    """What a rank index does that begins, and recovers from each fault."""
    found = [[0, NAMES.index("starting")], [20 + late, NAMES.index("importing")], [60, NAMES.index("productive")]]
    for moment in faults:
        found += [
            [round(10 * moment) + 12 * number + late, NAMES.index(cause)] for number, cause in enumerate(RECOVERY)
        ]
    return [span for span in found if span[0] < 10 * until]


def part(members: int = 4, faults: list[dict[str, Any]] | None = None, until: float = 4000.0, **changes: Any) -> Any:
    """A part of a history of one master."""
    noted = [fault(1000.0)] if faults is None else faults
    moments = [each["at"] - BEGAN for each in noted]
    lost = [each["rank_index"] for each in noted]
    tracks = [
        {"seats": [[a, b - 1]], "spans": spans(moments, until, late=3 * number), "end": round(10 * until)}
        for number, (a, b) in enumerate(pairwise(sorted({0, members, *lost, *(each + 1 for each in lost)})))
    ]
    return {
        "version": 1, "job": "digits", "term": 1, "began_at": BEGAN, "since": BEGAN, "until": BEGAN + until,
        "causes": NAMES,
        "tracks": tracks, "faults": noted,
        "generations": [[40, "1.1", members, members], *([round(10 * m) + 50, f"1.{n}", members, members]
                                                          for n, m in enumerate(moments, 2))],
        "holders": [[40, index, f"worker-{index}", f"node-{index % 8}"] for index in range(members)],
        "events": [[BEGAN + 4, "JobStarted", "normal", None, "The job begins with 4 members."]],
        "samples": [[BEGAN + until, 0.9 * members * until, members * until]],
    } | changes  # fmt: skip


def falling() -> dict[str, Any]:
    """A loss over time, as a part of a history has it."""
    return {"name": "loss", "points": [[BEGAN + 40.0 * n, 4.0 / (1 + n)] for n in range(100)]}


def status(members: int = 4, until: float = 4000.0, **changes: Any) -> dict[str, Any]:
    wall = members * until
    return {
        "version": 1, "job": "digits", "phase": "succeeded", "generation": "1.2", "world": members, "step": 12_400,
        "step_estimated": False, "steps_repeated": 40, "restarts": 1, "goodput": 0.9, "message": "", "exit_code": 0,
        "time": {"productive": 0.9 * wall, "repeated_steps": 0.04 * wall, "checkpoint_stall": 0.02 * wall,
                 "data_wait": 0.04 * wall},
        "replicated_step": None, "faults": [], "excluded_nodes": [], "stragglers": [],
        "members": [{"id": f"worker-{n}", "rank_index": n, "state": "done", "node": f"node-{n % 8}"}
                    for n in range(members)],
    } | changes  # fmt: skip


def made(status_: Any = None, *parts: Any, now: float = BEGAN + 4001, **more: Any) -> str:
    """The report of a job; with no status, of one that had a fault."""
    named = [(f"history-{number}.json", each) for number, each in enumerate(parts, 1)]
    return report(Sources(status() if status_ is None else status_, named, **more), now)
