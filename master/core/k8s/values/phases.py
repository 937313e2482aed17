"""The words of `status.phase`, of which some are names of conditions too."""

from __future__ import annotations

PENDING, RUNNING, RESTARTING = "Pending", "Running", "Restarting"
SUSPENDED, SUCCEEDED, FAILED, STOPPED = "Suspended", "Succeeded", "Failed", "Stopped"
CREATED = "Created"
OVER = (SUCCEEDED, FAILED, STOPPED)
"""Phases that no job leaves."""
