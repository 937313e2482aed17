"""Turns the child of a template into a worker process of its generation, between the fork and the script.

The child must equal a fresh process: signals as the template found them, its original environment plus the
generation's, no open file of the template, its own session (as torchrun gives each rank), and random values as in a
fresh process: numpy's global state and torch's default generator are reseeded, Python's own reseeds itself.
"""

import importlib
import os
import signal
import sys

from .. import patches
from ..process import tree
from ..rank import worker
from . import proctitle


class Rank:
    """One worker process, as its template sees it."""

    def __init__(self, pid, local_rank, rank):
        self.pid, self.local_rank, self.rank = pid, local_rank, rank


def saved_signals():
    """The signal dispositions with which the process was started, by number."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE)
    return {number: signal.getsignal(number) for number in numbers}


def restore_signals(dispositions):
    signal.set_wakeup_fd(-1)
    for number, handler in dispositions.items():
        if handler is not None:
            signal.signal(number, handler)


def set_environment(target):
    """Makes os.environ equal to `target`, through putenv, with as few calls as possible."""
    for name in [name for name in os.environ if name not in target]:
        del os.environ[name]
    for name, value in target.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def reseed():
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def keep_thread_count(loaded_with):
    """Applies the generation's OMP_NUM_THREADS if it differs: libgomp read the variable when the template imported
    torch."""
    count, torch = os.environ.get("OMP_NUM_THREADS"), sys.modules.get("torch")
    if torch is not None and count and count != loaded_with and count.isdigit():
        torch.set_num_threads(int(count))


def forget_hidden(folder, kept):
    """Drops standard library modules that only the hooks have imported and that the script's folder shadows, so the
    script imports its own."""
    try:
        entries = os.listdir(folder or ".")
    except OSError:
        return
    own = {entry.partition(".")[0] for entry in entries}
    for name in list(sys.modules):
        top = name.partition(".")[0]
        if top in own and name not in kept:
            del sys.modules[name]


def watch(volume, spec, generation, known_before):
    """Sets up the worker side of the hooks; if the volume is not writable the rank stays unobserved."""
    try:
        watched = worker.Worker(volume, spec["local_rank"], generation, known_before)
        worker.activate(watched)
        patches.count_steps(watched)
    except Exception:  # the hooks must never stop training
        os.environ.setdefault("OUTRIDER_WORKER", str(os.getpid()))


def name_process(environment, local_rank):
    proctitle.set_short("rank %s" % environment.get("RANK", local_rank))


def begin(parent):
    """The first call in the child."""
    tree.die_with_parent(parent)
    try:
        os.setsid()
    except OSError:
        pass


def settle():
    """The last call in the child: clears what a fresh interpreter would not have cached."""
    reseed()
    importlib.invalidate_caches()
