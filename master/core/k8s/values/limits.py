"""Limits for one job on the master that all jobs share.

The schema refuses what no installation accepts; `Limits` is what this installation accepts, by its settings.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.k8s.values.patterns import HERE, Verdicts

MOST_MEMBERS = 32_768
"""Maximum number of members of a job in any installation (the schema's maximum). One step of the core with this many
new members takes less than a second (`benchmarks/staffing.py`)."""
MEMBERS = 4096
"""Default maximum number of members of a job. The status needs up to 350 bytes per member, and etcd takes 1.5 MiB a
document unless its --max-request-bytes is raised. With more members no status could be written, and a generation
starts only after its status is written."""


@dataclass(frozen=True, slots=True)
class Limits:
    members: int = MEMBERS
    verdicts: Verdicts = HERE
    """Verdicts about the users' regular expressions."""


USUAL = Limits()
