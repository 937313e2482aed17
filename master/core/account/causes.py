"""The causes that a second of a member can have; exactly one of them applies at a time.

The first is what a user pays for. The names are the values of the label `cause` of the metrics and the keys of the
status' `time`.
"""

from __future__ import annotations

from typing import Final

PRODUCTIVE: Final = "productive"
"""Steps that were made for the first time."""
STARTING: Final = "starting"
"""The pod is pending, pulls its images or starts its containers; the order to start a generation is carried out."""
IMPORTING: Final = "importing"
"""The trainer's interpreter starts and imports modules."""
RENDEZVOUS: Final = "rendezvous"
"""In `init_process_group`."""
LOADING: Final = "loading"
"""Checkpoints are loaded, or replicas of them received."""
FIRST_STEP: Final = "first_step"
"""All else until the end of a process' first step: the model is built, the data loader filled, a graph compiled."""
REPEATED_STEPS: Final = "repeated_steps"
"""Steps that had been made before, and the step that a stop cut short."""
CHECKPOINT_STALL: Final = "checkpoint_stall"
"""A save holds up the main thread."""
DATA_WAIT: Final = "data_wait"
"""The main thread waits for a batch."""
EVALUATION: Final = "evaluation"
HANG: Final = "hang"
"""From the last sign of progress until a hang is confirmed."""
DETECTING: Final = "detecting"
"""From a fault until the master stops the generation for it."""
STOPPING: Final = "stopping"
"""Processes end: after an order to stop, or after the script's last step."""
WAITING: Final = "waiting"
"""For room in the cluster, for a replacement, or for the other members after a fault."""
SLOW_MEMBER: Final = "slow_member"
"""The part of each step by which a slow member holds up all."""
SUSPENDED: Final = "suspended"
UNKNOWN: Final = "unknown"
"""No master watched."""

CAUSES: Final = (
    PRODUCTIVE, STARTING, IMPORTING, RENDEZVOUS, LOADING, FIRST_STEP, REPEATED_STEPS, CHECKPOINT_STALL, DATA_WAIT,
    EVALUATION, HANG, DETECTING, STOPPING, WAITING, SLOW_MEMBER, SUSPENDED, UNKNOWN,
)  # fmt: skip

ACTIVITIES: Final = {
    "importing": IMPORTING,
    "rendezvous": RENDEZVOUS,
    "loading": LOADING,
    "checkpoint": CHECKPOINT_STALL,
    "data": DATA_WAIT,
    "evaluation": EVALUATION,
}
"""The cause of each activity that a rank reports (`outrider.wire.messages.report.Spent`)."""
