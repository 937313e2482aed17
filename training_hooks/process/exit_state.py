"""Reads what a worker process leaves behind when it ends: the reason, its session's processes, a partial save.

It also reads, before that, whether a process is inside a save that a stop must let finish. All of it is in the member's
volume.
"""

import os
import shutil
import signal
import time

from ..abi import progress_page, rank_files
from . import exception_report, tree


def how_it_ended(volume, local_rank, pid, status):
    """(code, signal, when, error) for an `exited` message. A recorded exception is the reason for the end, whatever
    happened during the exit."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = None if number else os.WEXITSTATUS(status)
    ours, torchs = rank_files.error_paths(volume, local_rank)
    error = exception_report.read(ours, torchs) if status else None
    at, raised = exception_report.last_word(ours, pid)
    if raised and number:
        code, number = 1, None
    return code, number, at if raised else time.monotonic(), error


def had_left(volume, living):
    """For a stop that begins now: returns a function of a pid. It returns how that process had begun to end by itself:
    "raised" (an exception), "leaving" (without one) or "". `living` is {pid: local rank}."""
    began = time.monotonic()

    def begun(pid):
        if pid not in living:
            return ""
        at, raised = exception_report.last_word(rank_files.error_paths(volume, living[pid])[0], pid)
        if at is None or at >= began:
            return ""
        return "raised" if raised else "leaving"

    return begun


def end_session(leader, template, living, keep):
    """Kills the DataLoader workers of a process and whatever else is in its session."""
    for pid in tree.descendants(template, keep):
        if pid not in living and _session_of(pid) == leader:
            tree.send(pid, signal.SIGKILL)


def _session_of(pid):
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def clear(volume):
    """Removes the folders in which processes that have ended were writing a save."""
    folder = rank_files.page_folder(volume)
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        reading = progress_page.read(os.path.join(folder, name))
        if reading is None or os.path.exists("/proc/%d" % reading.pid):
            continue
        if os.path.basename(reading.leftover).startswith(".outrider-"):
            shutil.rmtree(reading.leftover, ignore_errors=True)


def is_saving(volume, living, save_grace):
    """For a stop that begins now: returns a function that tells whether a pid is in a save that the stop waits for."""
    began = time.monotonic()

    def waited_for(pid):
        rank = living.get(pid)
        reading = progress_page.read(rank_files.page_path(volume, rank.local_rank), pid) if rank else None
        if reading is None or reading.phase != progress_page.CHECKPOINT:
            return False
        return time.monotonic() - began < reading.patience(save_grace)

    return waited_for
