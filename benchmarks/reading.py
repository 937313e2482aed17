"""What it costs to read what others have written: messages of a sidecar, and ElasticJobs at the size that is allowed.

Microseconds and milliseconds of processor time, the best of many. Run: python benchmarks/reading.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from measure.report import table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from outrider.master.core.k8s.elasticjob import validation
from outrider.master.core.k8s.values.names import Document
from outrider.wire.codec import decode_from_sidecar, encode
from outrider.wire.ids import Generation, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.membership import Hello
from outrider.wire.messages.report import RankProgress, Report

TRIES, READS = 40, 2000


def report(ranks: int) -> Report:
    rows = tuple(RankProgress(rank, 1200, 0.1, "step", 0.5) for rank in range(ranks))
    return Report(Generation(1, 3), "running", 1200, 0.5, 3.5, 900.0, 0, tuple(range(100, 100 + ranks)), rows, 7)


MESSAGES = {
    "Report of one rank": report(1),
    "Report of 8 ranks": report(8),
    "Hello": Hello(JobName("a/b"), MemberId("worker-3"), PodUid("u" * 36), Role("worker"), RankIndex(3), "t" * 80),
}


def job(environment: list[Document], **spec: object) -> Document:
    container = {"name": "trainer", "image": "digits:1", "command": ["python", "train.py"], "env": environment}
    worker = {"replicas": 4, "template": {"spec": {"containers": [container]}}}
    return {
        "metadata": {"name": "digits", "namespace": "default"},
        "spec": {"replicaSpecs": {"worker": worker}, **spec},
    }


JOBS = {
    "a plain job": job([]),
    "a template of 250 KiB": job([{"name": f"V{n}", "value": "x" * 220} for n in range(1000)]),
    "9,000 rules without a field": job([], recovery={"rules": [{} for _ in range(9000)]}),
}


def best(what: Callable[[], object], times: int, tries: int = TRIES) -> float:
    """Seconds a call."""
    found = []
    for _ in range(tries):
        began = time.process_time()
        for _ in range(times):
            what()
        found.append((time.process_time() - began) / times)
    return min(found)


def main() -> None:
    rows = []
    for name, message in MESSAGES.items():
        data = encode(message)
        read, write = best(lambda: decode_from_sidecar(data), READS), best(lambda: encode(message), READS)  # noqa: B023
        rows.append([name, f"{1e6 * read:.1f}", f"{1e6 * write:.1f}"])
    print(table(["message", "read, µs", "write, µs"], rows))
    rows = []
    for name, document in JOBS.items():
        took = best(lambda: validation.problems(document), 1)  # noqa: B023
        rows.append([name, f"{1e3 * took:.2f}", str(len(validation.problems(document)))])
    print(table(["ElasticJob", "judged, ms", "sentences"], rows))


if __name__ == "__main__":
    main()
