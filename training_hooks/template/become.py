"""Becomes the template: a waiting interpreter of the trainer, with imports done, that forks worker processes.

`become` is called from sitecustomize. In the template it never returns. In each worker process it returns, and CPython
runs the script exactly as it was called. If no sidecar comes, it returns in the first process itself, and the script
runs as without Outrider. If the process cannot be forked safely, it becomes the launcher, which runs the same command
again for each generation.
"""

import gc
import json
import os
import sys
import time

from .. import BEFORE, patches
from ..command import context, exec_env, invocation
from ..rank import known_checkpoints
from . import fork_safety, fork_worker, loop, preimport, proctitle, rehearsal

NO_SIDECAR = 60.0
"""Seconds to wait for a sidecar, unless OUTRIDER_PATIENCE has another number."""
LOCK_PATIENCE = 5.0


class Description:
    """The fields of this template's announcement to the sidecar."""

    def __init__(self, nproc=None, max_restarts=None, reason=""):
        self.nproc, self.max_restarts, self.reason = nproc, max_restarts, reason


class Beginning:
    """This process before the template changed anything: used to start over, and to set up the ranks."""

    def __init__(self):
        self.again = dict(os.environ, OUTRIDER_TEMPLATE="1")
        self.skip = json.loads(os.environ.pop(preimport.SKIP, "{}"))
        self.settings = exec_env.take()
        self.patience = float(os.environ.get("OUTRIDER_PATIENCE") or NO_SIDECAR)
        self.environment = dict(os.environ)
        self.called = invocation.current()
        self.signals = fork_worker.saved_signals()

    def restart(self):
        """Executes the same command again, because the files that this process has imported have changed on disk."""
        kept = {name: value for name, value in self.again.items() if name != preimport.SKIP}
        os.execve(sys.executable, invocation.command_line(), kept)

    def without(self, culprit, why):
        """Executes the same command again, with one more import left to the workers."""
        skip = json.dumps(dict(self.skip, **{culprit: why}), sort_keys=True)
        os.execve(sys.executable, invocation.command_line(), {**self.again, preimport.SKIP: skip})


def become(why):
    """Returns in worker processes, and in a process that turns out not to be a template.

    `why`: what made this process the trainer, as a clause; the settings of an inner launcher are in the environment
    (`command.exec_env`). The mark must have been removed from os.environ before.
    """
    start = Beginning()
    if rehearsal.VARIABLE in os.environ:
        rehearsal.perform(start, patches.prepare)
    volume = start.environment["OUTRIDER_DIR"]
    lock = only_one(volume, LOCK_PATIENCE) if start.called.kind != "stdin" else None
    if lock is None:
        return
    first = warm_up(start)
    loaded_with = os.environ.get("OMP_NUM_THREADS")
    title = proctitle.Title()
    title.show("outrider template: " + os.path.basename(start.called.target))
    proctitle.set_short("outrider-tmpl")
    gc.collect()
    gc.freeze()
    template = loop.Template(volume, describe(start, why, first), start)
    child = template.run()
    title.restore()
    lock.close()
    if child is None:
        run_alone(template, start)
    else:
        enter_script(template, child, start, first, loaded_with)


def warm_up(start):
    """Does the early imports and the self check; returns what was done. Otherwise it starts over, or becomes the
    launcher."""
    if (start.settings.get("nproc") or int(start.environment.get("OUTRIDER_NPROC") or 1)) > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does; libgomp reads it when torch is imported
    patches.prepare()
    first = preimport.Early(start.called, start.skip, start.without)
    first.notes += ["%s is imported by each worker process: %s" % item for item in sorted(start.skip.items())]
    try:
        first.run()
    except Exception as error:  # the import will fail in the script too, which then reports it
        first.notes.append("the early imports ended with %s: %s" % (type(error).__name__, error))
    problem = fork_safety.why_not()
    if problem:
        leave_out_or_hand_over(start, first, problem)
    return first


def enter_script(template, child, start, first, loaded_with):
    """Everything between the fork and the script's first line."""
    fork_worker.begin(template.pid)
    template.forget_everything()
    fork_worker.restore_signals(start.signals)
    template.unblock()
    environment = dict(child.defaults, **dict(start.environment, **child.environment))
    fork_worker.set_environment(environment)
    if start.settings.get("macros"):
        sys.argv[1:] = exec_env.fill_in(sys.argv[1:], child.spec["local_rank"])
    template.redirect(child)
    fork_worker.name_process(environment, child.spec["local_rank"])
    fork_worker.watch(
        start.environment["OUTRIDER_DIR"],
        child.spec,
        child.generation,
        known_checkpoints.Known(child.saves, child.prints),
    )
    fork_worker.keep_thread_count(loaded_with)
    fork_worker.settle()
    if first.folder is not None:
        fork_worker.forget_hidden(first.folder, BEFORE)


def describe(start, why, first):
    settings = start.settings
    reason = reason_of(settings.get("reason") or why, first)
    return Description(settings.get("nproc"), settings.get("max_restarts"), reason)


def reason_of(why, first):
    count = len(first.done)
    reason = "the template has imported %d module%s; %s" % (count, "" if count == 1 else "s", why)
    return "; ".join([reason] + first.notes)


def leave_out_or_hand_over(start, first, problem):
    """If an import is the cause, starts over with that import left to the workers; otherwise becomes the launcher."""
    if first.tasks and "thread" in problem:
        culprit = max(first.tasks, key=first.tasks.get)
        culprit = culprit if culprit in preimport.BEHIND else culprit.partition(".")[0]
        if culprit not in start.skip:
            start.without(culprit, problem)
    context.take_over(
        [sys.executable, *invocation.command_line()[1:]],
        start.environment,
        "this process cannot be forked: " + problem,
    )


def only_one(volume, patience):
    """The lock of this container's one template, or None if another process has it. No child inherits a record lock."""
    import fcntl

    until = time.monotonic() + patience
    try:
        file = open(os.path.join(volume, "template.lock"), "w")
    except OSError:
        return open(os.devnull)
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() >= until:
                return None
            time.sleep(0.02)


def run_alone(template, start):
    """Runs the script here as without Outrider: no sidecar came, or it released the process."""
    template.forget_everything()
    fork_worker.restore_signals(start.signals)
    fork_worker.set_environment(start.environment)
    os.environ["OUTRIDER_WORKER"] = str(os.getpid())
    gc.unfreeze()
    fork_worker.settle()
    proctitle.set_short(os.path.basename(sys.executable))
    why = template.let_go or "no sidecar connected within %g s" % template.waiting.patience
    sys.stderr.write("outrider: %s; the script runs without Outrider\n" % why)
    sys.stderr.flush()
