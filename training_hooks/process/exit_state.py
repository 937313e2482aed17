"""What a worker process leaves behind when it ends: the reason, processes of its session, a half-written save. Before
that, it says whether it is inside a save that a stop lets finish. All of it is read from the member's volume."""

import os
import shutil
import signal
import time

from ..abi import progress_page, rank_files
from . import exception_report, tree


def how_it_ended(volume, local_rank, pid, status):
    """(code, signal, when, error) for an `exited` line. An exception that was written down is why the process ended,
    whatever became of it on its way out."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = None if number else os.WEXITSTATUS(status)
    ours, torchs = rank_files.error_paths(volume, local_rank)
    error = exception_report.read(ours, torchs) if status else None
    at, raised = exception_report.last_word(ours, pid)
    if raised and number:
        code, number = 1, None
    return code, number, at if raised else time.monotonic(), error


def had_left(volume, living):
    """For an ending that begins now: a predicate, what had this pid done by itself before: "raised" an exception, begun
    "leaving" without one, or nothing, ""? `living` is {pid: local rank}."""
    began = time.monotonic()

    def asked(pid):
        if pid not in living:
            return ""
        at, raised = exception_report.last_word(rank_files.error_paths(volume, living[pid])[0], pid)
        if at is None or at >= began:
            return ""
        return "raised" if raised else "leaving"

    return asked


def end_session(leader, template, living, keep):
    """Kills its DataLoader workers and whatever else is in its session."""
    for pid in tree.descendants(template, keep):
        if pid not in living and _session_of(pid) == leader:
            tree.send(pid, signal.SIGKILL)


def _session_of(pid):
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def clear(volume):
    """Removes the folders in which processes that are gone were writing a save."""
    folder = rank_files.page_folder(volume)
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        reading = progress_page.read(os.path.join(folder, name))
        if reading is None or os.path.exists("/proc/%d" % reading.pid):
            continue
        if os.path.basename(reading.leftover).startswith(".outrider-"):
            shutil.rmtree(reading.leftover, ignore_errors=True)


def is_saving(volume, living, save_grace):
    """For an ending that begins now: a predicate, is this pid inside a save that is still waited for?"""
    began = time.monotonic()

    def asked(pid):
        rank = living.get(pid)
        reading = progress_page.read(rank_files.page_path(volume, rank.local_rank), pid) if rank else None
        if reading is None or reading.phase != progress_page.CHECKPOINT:
            return False
        return time.monotonic() - began < reading.patience(save_grace)

    return asked
