"""Keeps a newer checkpoint, as a hard link, before a save of an older state replaces it.

A script that has started over saves to its usual path, and its first save would destroy days of training. Rank 0 keeps
one file per job in the folder of its checkpoint, if the disk has room for another file of that size.
"""

import os
import re

FOLDER = ".outrider-kept"
KEPT = "%s of step %d is kept as %s, because a state of step %d takes its place"


def keep(worker, target):
    """Called before the file at `target` is replaced. It raises nothing; the save continues."""
    try:
        if worker.may_replace_newer and os.environ.get("RANK", "0") == "0":
            step = worker.known.step_of(target)
            if step > worker.steps_made():
                _link(worker, os.path.abspath(target), step)
    except Exception:  # a file system without links, a folder that cannot be written
        pass


def _link(worker, target, step):
    if os.path.islink(target) or not os.path.isfile(target):
        return
    folder = os.path.join(os.path.dirname(target), FOLDER)
    job = re.sub(r"[^A-Za-z0-9_-]", "_", os.environ.get("TORCHELASTIC_RUN_ID", "job"))
    of_job = re.compile(re.escape(job) + r"\.step-(\d+)\.")
    there = {name: int(match.group(1)) for name in _names(folder) for match in [of_job.match(name)] if match}
    if there and max(there.values()) >= step:
        return
    free = os.statvfs(os.path.dirname(target))
    if free.f_bavail * free.f_frsize < os.stat(target).st_size:
        return
    os.makedirs(folder, exist_ok=True)
    name = "%s.step-%d.%s" % (job, step, os.path.basename(target))
    os.link(target, os.path.join(folder, name))
    for older in there:
        os.unlink(os.path.join(folder, older))
    sentence = KEPT % (os.path.basename(target), step, os.path.join(folder, name), worker.steps_made())
    worker.report_data("newer kept", sentence, True, {"step": step})


def _names(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []
