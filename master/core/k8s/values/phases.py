"""The values of `status.phase`; some are also types of conditions."""

from __future__ import annotations

from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document

PENDING, RUNNING, RESTARTING = "Pending", "Running", "Restarting"
SUSPENDED, SUCCEEDED, FAILED, STOPPED = "Suspended", "Succeeded", "Failed", "Stopped"
CREATED = "Created"
OVER = (SUCCEEDED, FAILED, STOPPED)
"""Final phases."""


def is_over(job: Document) -> bool:
    return mapping(job.get("status")).get("phase") in OVER
