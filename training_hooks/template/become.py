"""Becomes the template: a parked interpreter of the trainer, imports done, that forks worker processes on demand.

`become` is called from within sitecustomize. In the template it never returns; in each worker process it returns, and
CPython goes on and runs the script exactly as it was called. Where no sidecar comes, it returns in the first process
itself: the script runs as without us. Where the process cannot be forked safely, it is given to the launcher, which
runs the same command anew for each generation.
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
"""Seconds from the start, where OUTRIDER_PATIENCE names no other number."""
LOCK_PATIENCE = 5.0


class Description:
    """What an announcement says of this template."""

    def __init__(self, nproc=None, max_restarts=None, reason=""):
        self.nproc, self.max_restarts, self.reason = nproc, max_restarts, reason


class Beginning:
    """This process as it was before the template changed anything, to begin again from and to give to the ranks."""

    def __init__(self):
        self.again = dict(os.environ, OUTRIDER_TEMPLATE="1")
        self.skip = json.loads(os.environ.pop(preimport.SKIP, "{}"))
        self.told = exec_env.take()
        self.patience = float(os.environ.get("OUTRIDER_PATIENCE") or NO_SIDECAR)
        self.environment = dict(os.environ)
        self.called = invocation.current()
        self.signals = fork_worker.saved_signals()

    def anew(self):
        """Executes the same command anew: what this process has imported lies on the disk no more."""
        kept = {name: value for name, value in self.again.items() if name != preimport.SKIP}
        os.execve(sys.executable, invocation.command_line(), kept)

    def without(self, culprit, why):
        """Executes the same command anew, to leave one more import to the workers."""
        skip = json.dumps(dict(self.skip, **{culprit: why}), sort_keys=True)
        os.execve(sys.executable, invocation.command_line(), {**self.again, preimport.SKIP: skip})


def become(why):
    """Returns in worker processes, and where this process turns out not to be one for a template.

    `why`: what made this process the trainer, one clause; what an inner launcher asked for is in the environment
    (`command.exec_env`). The mark must have left os.environ already.
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
    """The early imports and the self check; returns what was done. Not to return is to begin again, or to be T1."""
    if (start.told.get("nproc") or int(start.environment.get("OUTRIDER_NPROC") or 1)) > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun does; libgomp reads it when torch is imported
    patches.prepare()
    first = preimport.Early(start.called, start.skip, start.without)
    first.notes += ["%s is left to the worker processes: %s" % item for item in sorted(start.skip.items())]
    try:
        first.run()
    except Exception as error:  # an import failed as it will in the script, which then says so itself
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
    if start.told.get("macros"):
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
    told = start.told
    return Description(told.get("nproc"), told.get("max_restarts"), reason_of(told.get("reason") or why, first))


def reason_of(why, first):
    reason = "template of %d early imports; %s" % (len(first.done), why)
    return "; ".join([reason] + first.notes)


def leave_out_or_hand_over(start, first, problem):
    """Where an import is to blame, begin again without it: the workers import it. Else T1."""
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
    """The lock of this container's one template; None where another holds it. A record lock: no child inherits it."""
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
    """Nobody came, or the sidecar lets it go: the script runs here, as without us."""
    template.forget_everything()
    fork_worker.restore_signals(start.signals)
    fork_worker.set_environment(start.environment)
    os.environ["OUTRIDER_WORKER"] = str(os.getpid())
    gc.unfreeze()
    fork_worker.settle()
    proctitle.set_short(os.path.basename(sys.executable))
    why = template.let_go or "no sidecar came within %g s" % template.waiting.patience
    sys.stderr.write("outrider: %s; the script runs without Outrider\n" % why)
    sys.stderr.flush()
