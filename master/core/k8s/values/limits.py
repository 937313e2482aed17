"""What one job may ask of the master that serves all of them.

A schema refuses what no installation takes; `Limits` is what this one takes, which its settings say.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.k8s.values.patterns import HERE, Verdicts

MOST_MEMBERS = 32_768
"""Of one job, anywhere: what the schema of ElasticJobs takes. One step of the core with so many new members is under a
second (`benchmarks/staffing.py`)."""
MEMBERS = 4096
"""Of one job, where the master's setting says nothing else. What the next master needs to know of a member are up to
350 bytes of the status, with its rows there, and etcd takes 1.5 MiB a document unless it is told otherwise
(--max-request-bytes): of more members no status could be written, and no generation begins before it is."""


@dataclass(frozen=True, slots=True)
class Limits:
    members: int = MEMBERS
    verdicts: Verdicts = HERE
    """Of users' patterns."""


USUAL = Limits()
